"""The server: uvicorn on our socket, with limits of connections and a time limit for the headers of a request."""

import asyncio
import functools
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from batchscale.errors import RunError
from batchscale.web.app import create_app
from batchscale.web.auth import Auth
from batchscale.web.connections import Connections
from batchscale.web.security import MAX_HEADER_BYTES
from batchscale.web.settings import WebSettings

BACKLOG = 512
HANDSHAKE_S = 10.0


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
        timeout_keep_alive=15, timeout_graceful_shutdown=2, proxy_headers=False, loop="asyncio", lifespan="off",
        ssl_certfile=str(certificate) if certificate else None, ssl_keyfile=str(key) if key else None,
    )  # fmt: skip
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server with a time limit for TLS handshakes too; uvicorn has no option for it."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        if self.config.is_ssl:
            loop: Any = asyncio.get_running_loop()
            loop.create_server = functools.partial(loop.create_server, ssl_handshake_timeout=HANDSHAKE_S)
        await super().startup(sockets)


def _protocol_with_timeout(seconds: float) -> type[asyncio.Protocol]:
    """Return an HTTP protocol with limited connections, whose headers must not take longer than some seconds."""
    connections = Connections()

    class TimeoutProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        @property
        def address(self) -> str:
            return self.client[0] if self.client else ""

        @property
        def is_signed_in(self) -> bool:
            return self.scope is not None and self.scope["state"].get("identity") is not None

        @property
        def is_busy(self) -> bool:
            return not self._is_between_requests()

        def evict(self) -> None:
            self.transport.abort()  # not close, which waits for a visitor that reads nothing

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_headers()
            connections.add(self)

        def data_received(self, data: bytes) -> None:
            if self._timer is None and self._is_between_requests():
                self._wait_for_headers()  # the first bytes of a further request
            super().data_received(data)
            if self._timer is not None and not self._is_between_requests():
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self)
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
