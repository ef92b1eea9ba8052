"""The server: uvicorn on our socket, with a limit on how long a request's headers may take."""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from batchscale.errors import RunError
from batchscale.web.access import Access
from batchscale.web.app import create_app
from batchscale.web.gate import LARGEST_HEADERS
from batchscale.web.settings import WebSettings

MOST_CONNECTIONS = 400
BACKLOG = 512


def bind(settings: WebSettings) -> socket.socket:
    """A socket that listens at the server's address.

    Raises:
        RunError: the address is taken or not ours.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)  # from now on who comes early waits, and is not refused
    except OSError as error:
        listener.close()
        raise RunError(
            f"The web interface needs an address of its own. {settings.host} port {settings.port}: {error.strerror}. "
            "Choose another with --port, or --port 0 for any."
        ) from None
    return listener


def serve(settings: WebSettings, access: Access, listener: socket.socket) -> None:
    """Answer requests until a signal comes. Runs that were started here go on without us."""
    patient = settings.limits.header_s
    certificate, key = settings.certificate or (None, None)
    config = uvicorn.Config(
        create_app(settings, access), log_level="warning", access_log=False, server_header=False, ws="none",
        http=_hurried(patient), h11_max_incomplete_event_size=LARGEST_HEADERS, limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=15, timeout_graceful_shutdown=2, proxy_headers=False, loop="asyncio", lifespan="off",
        ssl_certfile=str(certificate) if certificate else None, ssl_keyfile=str(key) if key else None,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])


def _hurried(seconds: float) -> type[asyncio.Protocol]:
    """The HTTP protocol for connections on which the headers of every request arrive within some seconds."""

    class Hurried(H11Protocol):
        _patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_headers()

        def data_received(self, data: bytes) -> None:
            if self._patience is None and self._is_between_requests():
                self._wait_for_headers()  # the first bytes of a further request: the same holds for it
            super().data_received(data)
            if self._patience is not None and not self._is_between_requests():
                self._patience.cancel()
                self._patience = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._patience is not None:
                self._patience.cancel()
            super().connection_lost(exc)

        def _is_between_requests(self) -> bool:
            cycle = getattr(self, "cycle", None)
            return cycle is None or bool(cycle.response_complete)

        def _wait_for_headers(self) -> None:
            self._patience = asyncio.get_running_loop().call_later(seconds, self._give_up)

        def _give_up(self) -> None:
            self._patience = None
            if self._is_between_requests() and not self.transport.is_closing():
                self.transport.close()

    return Hurried
