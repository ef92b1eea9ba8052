"""The server: uvicorn on our socket, with a time limit for the headers of a request."""

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from batchscale.errors import RunError
from batchscale.web.app import create_app
from batchscale.web.auth import Auth
from batchscale.web.security import MAX_HEADER_BYTES
from batchscale.web.settings import WebSettings

MAX_CONNECTIONS = 400
BACKLOG = 512


def bind(settings: WebSettings) -> socket.socket:
    """Return a socket that listens at the server's address.

    Raises:
        RunError: the address is taken or not ours.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)  # early connections wait from now on, and are not refused
    except OSError as error:
        listener.close()
        raise RunError(
            f"The web interface needs a free address. {settings.host} port {settings.port}: {error.strerror}. "
            "Choose another with --port, or --port 0 for any."
        ) from None
    return listener


def serve(settings: WebSettings, auth: Auth, listener: socket.socket) -> None:
    """Handle requests until a signal arrives. Runs that were started here continue."""
    certificate, key = settings.certificate or (None, None)
    config = uvicorn.Config(
        create_app(settings, auth), log_level="warning", access_log=False, server_header=False, ws="none",
        http=_protocol_with_timeout(settings.limits.header_s), h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=15, timeout_graceful_shutdown=2, proxy_headers=False, loop="asyncio", lifespan="off",
        ssl_certfile=str(certificate) if certificate else None, ssl_keyfile=str(key) if key else None,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])


def _protocol_with_timeout(seconds: float) -> type[asyncio.Protocol]:
    """Return an HTTP protocol that closes connections whose headers take longer than some seconds."""

    class TimeoutProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_headers()

        def data_received(self, data: bytes) -> None:
            if self._timer is None and self._is_between_requests():
                self._wait_for_headers()  # the first bytes of a further request
            super().data_received(data)
            if self._timer is not None and not self._is_between_requests():
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

        def _is_between_requests(self) -> bool:
            cycle = getattr(self, "cycle", None)
            return cycle is None or bool(cycle.response_complete)

        def _wait_for_headers(self) -> None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._close)

        def _close(self) -> None:
            self._timer = None
            if self._is_between_requests() and not self.transport.is_closing():
                self.transport.close()

    return TimeoutProtocol
