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
    """The HTTP protocol for connections that must send the headers of their first request within some seconds."""

    class Hurried(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._patience = asyncio.get_running_loop().call_later(seconds, self._give_up)

        def _give_up(self) -> None:
            if getattr(self, "cycle", None) is None:  # no request has come as far as its last header
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._patience.cancel()
            super().connection_lost(exc)

    return Hurried
