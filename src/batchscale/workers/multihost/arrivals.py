"""The connections that reach a waiting chief, each read beside the others, within a time and a size of its own.

Anyone who reaches the port can connect. A connection that sends nothing, too slowly, too much or something else is
closed, and delays no process of the cluster.
"""

import contextlib
import selectors
import socket
import time
from dataclasses import dataclass, field

from batchscale.workers.multihost.wire import MAX_HELLO_BYTES, Connection, Frame, parse_frame

HELLO_S = 10.0
"""The longest that a new connection may take to introduce itself."""

MAX_STRANGERS = 64
"""So many connections beside those of the cluster may be open at once; then the oldest is closed."""


@dataclass
class _Arrival:
    socket: socket.socket
    until: float
    data: bytearray = field(default_factory=bytearray)


class Arrivals:
    """New connections at a listening socket, until they have sent their first message."""

    def __init__(self, listener: socket.socket, num_expected: int) -> None:
        self._listener = listener
        self._max_open = num_expected + MAX_STRANGERS
        self._open: dict[socket.socket, _Arrival] = {}  # oldest first
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def next(self, until: float) -> tuple[Connection, Frame] | None:
        """Return the next connection with its first message; None when the monotonic clock reaches ``until``."""
        while (now := time.monotonic()) < until:
            for late in [arrival.socket for arrival in self._open.values() if arrival.until <= now]:
                self._drop(late)
            deadline = min([until, *(arrival.until for arrival in self._open.values())])
            for key, _ in self._selector.select(max(0.0, deadline - now)):
                if key.fileobj is self._listener:
                    self._accept()
                    continue
                frame = self._read(key.fileobj)  # type: ignore[arg-type]  # sockets alone are registered
                if frame is not None:
                    return self._release(key.fileobj), frame  # type: ignore[arg-type]
        return None

    def close(self) -> None:
        """Close the connections that have sent no message."""
        for connection in list(self._open):
            self._drop(connection)
        self._selector.close()

    def _accept(self) -> None:
        if len(self._open) >= self._max_open:
            self._drop(next(iter(self._open)))
        try:
            connection = self._listener.accept()[0]
        except OSError:  # it has gone, or this process may open no further file
            if self._open:
                self._drop(next(iter(self._open)))
            return
        connection.setblocking(False)
        self._open[connection] = _Arrival(connection, time.monotonic() + HELLO_S)
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> Frame | None:
        """Return the message of a connection if it is complete; close one that sends anything else."""
        arrival = self._open.get(connection)
        if arrival is None:  # closed meanwhile
            return None
        try:
            part = connection.recv(MAX_HELLO_BYTES)
            if not part:
                raise EOFError
            arrival.data += part
            return parse_frame(arrival.data, MAX_HELLO_BYTES)
        except BlockingIOError:
            return None
        except (OSError, EOFError, ValueError):
            self._drop(connection)
            return None

    def _release(self, connection: socket.socket) -> Connection:
        self._selector.unregister(connection)
        del self._open[connection]
        connection.setblocking(True)
        return Connection(connection)

    def _drop(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        self._open.pop(connection, None)
        connection.close()
