"""The gate before every page: host, origin, method, session, CSRF, size and time of bodies, security headers.

An ASGI application around the pages, so that nothing can be routed past it: event streams and unknown paths go through
it as well. What it lets pass carries ``state["identity"]`` and, for POST, ``state["form"]``.
"""

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from batchscale.web.access import Access, Identity
from batchscale.web.audit import AuditLog
from batchscale.web.rates import Rate
from batchscale.web.refusals import RefusedError
from batchscale.web.settings import WebSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse = Callable[[Scope, RefusedError], tuple[int, list[tuple[bytes, bytes]], bytes]]

LARGEST_HEADERS = 16 * 1024
SAFE = ("GET", "HEAD")
CHECKS = ("/new/fields", "/new/toml", "/new/check")  # asked for while somebody types; they change nothing
POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"cache-control": b"no-store",
}


@dataclass(frozen=True)
class _Asked:
    """The parts of a request that the gate looks at."""

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]

    def header(self, name: bytes) -> str | None:
        """The one header of that name; several are refused, because two readers could choose different ones."""
        found = [value for key, value in self.headers if key == name]
        if len(found) > 1:
            raise RefusedError(400, f"A request has one {name.decode()} header. Found {len(found)}.")
        return found[0].decode("latin-1") if found else None

    @property
    def is_public(self) -> bool:
        return self.path == "/sign-in" or self.path.startswith("/static/")


class Gate:
    """Lets through what comes from our own pages or with the token."""

    def __init__(
        self,
        app: App,
        settings: WebSettings,
        access: Access,
        audit: AuditLog,
        refuse: Refuse,
        upload_paths: tuple[re.Pattern[str], ...] = (),
    ) -> None:
        self._app = app
        self._settings = settings
        self._access = access
        self._audit = audit
        self._refuse = refuse
        self._upload_paths = upload_paths
        self._sign_ins = Rate(settings.limits.sign_ins)
        self._actions = Rate(settings.limits.actions)
        self._checks = Rate(settings.limits.checks)
        self._uploads = Rate(settings.limits.uploads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        asked = _Asked(scope["method"], scope["path"], list(scope["headers"]))
        send = _with_headers(send)
        try:
            receive = await self._check(asked, scope, receive)
        except RefusedError as refused:
            if asked.method not in SAFE:
                self._audit.add("refused", f"{asked.method} {asked.path}", f"{refused.status}", refused.message)
            await self._answer(scope, send, refused)
            return
        await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, send: Send, refused: RefusedError) -> None:
        status, headers, body = self._refuse(scope, refused)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _check(self, asked: _Asked, scope: Scope, receive: Receive) -> Receive:
        if sum(len(key) + len(value) for key, value in asked.headers) > LARGEST_HEADERS:
            raise RefusedError(431, f"The headers of a request have at most {LARGEST_HEADERS:,} bytes.")
        if {b"content-length", b"transfer-encoding"} <= {key for key, _ in asked.headers}:
            raise RefusedError(400, "A request says in one way how long it is. Found two.")
        self._check_host(asked)
        origin = self._check_origin(asked)
        if asked.method not in (*SAFE, "POST"):
            raise RefusedError(405, "Pages are read with GET and actions asked for with POST, nothing else.")
        identity, by_cookie = self._identify(asked)
        state = scope.setdefault("state", {})
        state["identity"] = identity
        if identity is None and not asked.is_public:
            raise RefusedError(401, "Sign in first: with the one-time code that the server printed, or the token.")
        if asked.method in SAFE:
            _check_embedding(asked)
            return receive
        if self._is_upload(asked.path):  # what comes is stored as it comes: the page limits it
            state["form"] = {}
            self._check_unsafe(asked, identity, by_cookie, origin, {})
            return receive
        body = await self._read_body(asked, receive)
        form = self._parse(asked, body)
        state["form"] = form
        self._check_unsafe(asked, identity, by_cookie, origin, form)
        return _replay(body, receive)

    def _check_host(self, asked: _Asked) -> None:
        host = asked.header(b"host")
        if host is None or host.lower() not in self._settings.hosts:
            raise RefusedError(421, "This server answers to its own names and port only, and was asked for another.")

    def _check_origin(self, asked: _Asked) -> str | None:
        origin = asked.header(b"origin")
        if origin is not None and origin.lower() not in {
            f"{self._settings.scheme}://{h}" for h in self._settings.hosts
        }:
            raise RefusedError(403, "Only pages of this server may ask. The request comes from another origin.")
        if (
            origin is not None
            and origin.lower() != f"{self._settings.scheme}://{(asked.header(b'host') or '').lower()}"
        ):
            raise RefusedError(403, "Only pages of this server may ask. The request comes from another of its names.")
        return origin

    def _identify(self, asked: _Asked) -> tuple[Identity | None, bool]:
        bearer = self._access.find_bearer(asked.header(b"authorization"))
        if bearer is not None:
            return bearer, False
        return self._access.find_session(session_cookie(asked.headers, self._settings.cookie)), True

    def _check_unsafe(
        self, asked: _Asked, identity: Identity | None, by_cookie: bool, origin: str | None, form: dict[str, str]
    ) -> None:
        if identity is None or by_cookie:
            if origin is None:
                raise RefusedError(403, "An action comes from a page of this server. The request names no origin.")
            if asked.header(b"sec-fetch-site") not in (None, "same-origin"):
                raise RefusedError(403, "An action comes from a page of this server, not from another site.")
        if identity is None:
            if not self._sign_ins.take("sign-in"):
                raise RefusedError(429, "Too many attempts to sign in. Wait a minute.")
            return
        if by_cookie:
            given = asked.header(b"x-csrf-token") or form.get("csrf", "")
            if not hmac.compare_digest(given.encode(), identity.csrf.encode()):
                raise RefusedError(403, "The form is not of this session. Load the page again and repeat it.")
        if self._settings.read_only and asked.path not in ("/sign-in", "/sign-out"):
            raise RefusedError(403, "This server was started with --read-only: it shows and changes nothing.")
        if not self._rate(asked.path).take(identity.name):
            raise RefusedError(429, "Too many actions within a minute. Wait a little.")

    def _rate(self, path: str) -> Rate:
        if self._is_upload(path):
            return self._uploads
        return self._checks if path in CHECKS else self._actions

    def _is_upload(self, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in self._upload_paths)

    async def _read_body(self, asked: _Asked, receive: Receive) -> bytes:
        limits = self._settings.limits
        length = asked.header(b"content-length") or "0"
        if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > limits.body_bytes:
            raise RefusedError(413, f"A request has at most {limits.body_bytes:,} bytes.")
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "The request ended before it was complete.")
                    chunks.append(message.get("body", b""))
                    if sum(map(len, chunks)) > limits.body_bytes:
                        raise RefusedError(413, f"A request has at most {limits.body_bytes:,} bytes.")
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise RefusedError(408, f"A request arrives within {limits.body_s:g} s.") from None

    def _parse(self, asked: _Asked, body: bytes) -> dict[str, str]:
        kind = (asked.header(b"content-type") or "").partition(";")[0].strip().lower()
        if body and kind != "application/x-www-form-urlencoded":
            raise RefusedError(415, "Forms are sent as application/x-www-form-urlencoded.")
        try:
            pairs = parse_qsl(
                body.decode("ascii"), keep_blank_values=True, errors="strict",
                max_num_fields=self._settings.limits.body_fields,
            )  # fmt: skip
        except ValueError:
            raise RefusedError(400, "The form is damaged or has too many fields.") from None
        return dict(pairs)


def _check_embedding(asked: _Asked) -> None:
    """Refuse what other sites and other local ports embed: cookies do not keep ports apart."""
    site = asked.header(b"sec-fetch-site")
    if site in ("cross-site", "same-site") and asked.header(b"sec-fetch-mode") != "navigate":
        raise RefusedError(403, "Only pages of this server may use its parts. The request comes from another site.")


def session_cookie(headers: list[tuple[bytes, bytes]], name: str) -> str | None:
    """The value of our cookie; None without one, and where there are two."""
    found = []
    for key, value in headers:
        if key == b"cookie":
            parts = (part.strip().partition("=") for part in value.decode("latin-1").split(";"))
            found += [text for own, _, text in parts if own == name]
    return found[0] if len(found) == 1 else None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = list(message.get("headers", []))
            there = {key.lower() for key, _ in own}
            message["headers"] = [*own, *((key, value) for key, value in HEADERS.items() if key not in there)]
        await send(message)

    return sending


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again
