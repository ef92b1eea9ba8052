"""A local address for the chief's coordinator that stays open when the chief is gone.

JAX aborts a process within milliseconds when its connection to the coordinator closes: before anything can report which
host was lost. Here the coordinator's bytes pass through a connection of our own. When the far end closes, the near end
stays open and idle, JAX waits, and the heartbeats of `hosts` report the loss first.
"""

import contextlib
import socket
import threading

CHUNK = 2**16
CONNECT_S = 5.0


class Relay:
    """Forwards connections from a loopback address of this process to ``host`` and ``port`` until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []  # a socket without a reference would be closed
        threading.Thread(target=self._accept, daemon=True, name="relay").start()

    def close(self) -> None:
        """Stop accepting connections, and end the open ones."""
        for connection in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(self._target, timeout=CONNECT_S)
            except OSError:
                near.close()  # the coordinator is not up yet: JAX tries again
                continue
            far.settimeout(None)
            self._open += [near, far]
            for source, sink, ends_sink in ((near, far, True), (far, near, False)):
                threading.Thread(target=_forward, args=(source, sink, ends_sink), daemon=True, name="relay").start()


def _forward(source: socket.socket, sink: socket.socket, ends_sink: bool) -> None:
    """Forward bytes until the source closes; then end the sink as well if ``ends_sink``."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    if ends_sink:
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
