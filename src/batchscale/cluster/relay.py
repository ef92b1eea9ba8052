"""A door on this host to the chief's coordinator, which stays open when the chief is gone.

JAX ends a process by an abort, within milliseconds, when its connection to the coordinator closes: before anybody can
say which host was lost. Here the coordinator's bytes pass through a connection of our own. When the far end closes, the
near end stays open and silent, JAX waits, and whoever watches the hosts (`peers`) speaks first.
"""

import contextlib
import socket
import threading

CHUNK = 2**16
CONNECT_S = 5.0


class Relay:
    """Passes connections at a loopback address of this process on to ``host`` and ``port``, as long as it lives."""

    def __init__(self, host: str, port: int) -> None:
        self._far = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._held: list[socket.socket] = []  # a socket that nobody holds is closed
        threading.Thread(target=self._accept, daemon=True, name="relay").start()

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        for one in (self._listener, *self._held):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(self._far, timeout=CONNECT_S)
            except OSError:
                near.close()  # nobody is there yet: whoever asked tries again
                continue
            far.settimeout(None)
            self._held += [near, far]
            for source, sink, ends in ((near, far, True), (far, near, False)):
                threading.Thread(target=_pass_on, args=(source, sink, ends), daemon=True, name="relay").start()


def _pass_on(source: socket.socket, sink: socket.socket, ends: bool) -> None:
    """Pass bytes on until the source closes, which ends the sink as well if ``ends``."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    if ends:
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
