"""Security middleware before every page: host, origin, method, session, CSRF, size and time of bodies, headers, rates.

It is an ASGI application around the pages, so nothing can be routed past it: event streams and unknown paths go through
it as well. Requests that pass carry ``state["identity"]`` and, for POST, ``state["form"]``.
"""

import asyncio
import hmac
import re
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from batchscale.web.auth import AuditLog, Auth, Identity
from batchscale.web.refusals import RefusedError
from batchscale.web.settings import WebSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse = Callable[[Scope, RefusedError], tuple[int, list[tuple[bytes, bytes]], bytes]]

MAX_HEADER_BYTES = 16 * 1024
SAFE = ("GET", "HEAD")
CHECKS = ("/new/fields", "/new/toml", "/new/check")  # requested while somebody types; they change nothing
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
class _Request:
    """The parts of a request that are checked."""

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]

    def header(self, name: bytes) -> str | None:
        """Return the header of that name; several are refused, because two readers could choose different ones."""
        values = [value for key, value in self.headers if key == name]
        if len(values) > 1:
            raise RefusedError(400, f"A request must have one {name.decode()} header. Found {len(values)}.")
        return values[0].decode("latin-1") if values else None

    @property
    def is_public(self) -> bool:
        return self.path == "/sign-in" or self.path.startswith("/static/")


class Rate:
    """A limit of ``per_minute`` actions for each key, in bursts of at most as many."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._tokens: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, key: str) -> bool:
        """Return True and count the action if it is allowed now."""
        with self._lock:
            now = self._clock()
            tokens, since = self._tokens.get(key, (float(self._per_minute), now))
            tokens = min(self._per_minute, tokens + (now - since) * self._per_minute / 60)
            if len(self._tokens) > 10_000:
                self._tokens.clear()  # keys are few; a flood of them must not fill the memory
            self._tokens[key] = (tokens - 1 if tokens >= 1 else tokens, now)
            return tokens >= 1


class SecurityMiddleware:
    """Passes requests that come from our own pages or with the token."""

    def __init__(
        self,
        app: App,
        settings: WebSettings,
        auth: Auth,
        audit: AuditLog,
        refuse: Refuse,
        upload_paths: tuple[re.Pattern[str], ...] = (),
    ) -> None:
        self._app = app
        self._settings = settings
        self._auth = auth
        self._audit = audit
        self._refuse = refuse
        self._upload_paths = upload_paths
        self._actions = Rate(settings.limits.actions)
        self._checks = Rate(settings.limits.checks)
        self._uploads = Rate(settings.limits.uploads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        request = _Request(scope["method"], scope["path"], list(scope["headers"]))
        send = _with_headers(send)
        try:
            receive = await self._check(request, scope, receive)
        except RefusedError as refused:
            if request.method not in SAFE:
                self._audit.add("refused", f"{request.method} {request.path}", f"{refused.status}", refused.message)
            await self._answer(scope, send, refused)
            return
        if request.method == "HEAD":
            await _answer_head(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, send: Send, refused: RefusedError) -> None:
        status, headers, body = self._refuse(scope, refused)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _check(self, request: _Request, scope: Scope, receive: Receive) -> Receive:
        if sum(len(key) + len(value) for key, value in request.headers) > MAX_HEADER_BYTES:
            raise RefusedError(431, f"The headers of a request must have at most {MAX_HEADER_BYTES:,} bytes.")
        if {b"content-length", b"transfer-encoding"} <= {key for key, _ in request.headers}:
            raise RefusedError(400, "A request must state its length in one way. Found two.")
        self._check_host(request)
        origin = self._check_origin(request)
        if request.method not in (*SAFE, "POST"):
            raise RefusedError(405, "Pages are read with GET and actions are sent with POST, nothing else.")
        identity, by_cookie = self._identify(request)
        state = scope.setdefault("state", {})
        state["identity"] = identity
        if identity is None and not request.is_public:
            raise RefusedError(401, "Sign in first: with the one-time code that the server printed, or the token.")
        if request.method in SAFE:
            _check_embedding(request)
            return receive
        if self._is_upload(request.path):  # the page stores the body as it arrives, and limits it
            state["form"] = {}
            self._check_unsafe(request, identity, by_cookie, origin, {})
            return receive
        body = await self._read_body(request, receive)
        form = self._parse(request, body)
        state["form"] = form
        self._check_unsafe(request, identity, by_cookie, origin, form)
        return _replay(body, receive)

    def _check_host(self, request: _Request) -> None:
        host = request.header(b"host")
        if host is None or host.lower() not in self._settings.hosts:
            raise RefusedError(421, "This server answers to its own names and port only. The request names another.")

    def _check_origin(self, request: _Request) -> str | None:
        origin = request.header(b"origin")
        if origin is not None and origin.lower() not in {
            f"{self._settings.scheme}://{h}" for h in self._settings.hosts
        }:
            raise RefusedError(403, "Only pages of this server may send requests. This one comes from another origin.")
        if (
            origin is not None
            and origin.lower() != f"{self._settings.scheme}://{(request.header(b'host') or '').lower()}"
        ):
            raise RefusedError(
                403, "Only pages of this server may send requests. This one comes from another of its names."
            )
        return origin

    def _identify(self, request: _Request) -> tuple[Identity | None, bool]:
        bearer = self._auth.find_bearer(request.header(b"authorization"))
        if bearer is not None:
            return bearer, False
        return self._auth.find_session(session_cookie(request.headers, self._settings.cookie)), True

    def _check_unsafe(
        self, request: _Request, identity: Identity | None, by_cookie: bool, origin: str | None, form: dict[str, str]
    ) -> None:
        if identity is None or by_cookie:
            if origin is None:
                raise RefusedError(403, "An action must come from a page of this server. The request names no origin.")
            if request.header(b"sec-fetch-site") not in (None, "same-origin"):
                raise RefusedError(403, "An action must come from a page of this server, not from another site.")
        if identity is None:
            return  # only the page to sign in is open to strangers, and it counts their attempts
        if by_cookie and request.path != "/sign-in":  # its form may be older than the session
            token = request.header(b"x-csrf-token") or form.get("csrf", "")
            if not hmac.compare_digest(token.encode(), identity.csrf.encode()):
                raise RefusedError(403, "The form is not of this session. Reload the page and repeat.")
        if self._settings.read_only and request.path not in ("/sign-in", "/sign-out"):
            raise RefusedError(403, "This server was started with --read-only, so it changes nothing.")
        if not self._rate(request.path).take(identity.name):
            raise RefusedError(429, "Too many actions within a minute. Wait a little.")

    def _rate(self, path: str) -> Rate:
        if self._is_upload(path):
            return self._uploads
        return self._checks if path in CHECKS else self._actions

    def _is_upload(self, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in self._upload_paths)

    async def _read_body(self, request: _Request, receive: Receive) -> bytes:
        limits = self._settings.limits
        length = request.header(b"content-length") or "0"
        if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > limits.body_bytes:
            raise RefusedError(413, f"A request must have at most {limits.body_bytes:,} bytes.")
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "The request ended before it was complete.")
                    chunks.append(message.get("body", b""))
                    if sum(map(len, chunks)) > limits.body_bytes:
                        raise RefusedError(413, f"A request must have at most {limits.body_bytes:,} bytes.")
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise RefusedError(408, f"A request must arrive within {limits.body_s:g} s.") from None

    def _parse(self, request: _Request, body: bytes) -> dict[str, str]:
        kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        if body and kind != "application/x-www-form-urlencoded":
            raise RefusedError(415, "Forms must be sent as application/x-www-form-urlencoded.")
        try:
            pairs = parse_qsl(
                body.decode("ascii"), keep_blank_values=True, errors="strict",
                max_num_fields=self._settings.limits.body_fields,
            )  # fmt: skip
        except ValueError:
            raise RefusedError(400, "The form is damaged or has too many fields.") from None
        return dict(pairs)


def _check_embedding(request: _Request) -> None:
    """Refuse requests of other sites and other local ports: cookies are shared between ports."""
    site = request.header(b"sec-fetch-site")
    if site in ("cross-site", "same-site") and request.header(b"sec-fetch-mode") != "navigate":
        raise RefusedError(403, "Only pages of this server may use its parts. This request comes from another site.")


def session_cookie(headers: list[tuple[bytes, bytes]], name: str) -> str | None:
    """Return the value of our cookie; None without it, or if there are two."""
    values = []
    for key, value in headers:
        if key == b"cookie":
            parts = (part.strip().partition("=") for part in value.decode("latin-1").split(";"))
            values += [text for key_, _, text in parts if key_ == name]
    return values[0] if len(values) == 1 else None


async def _answer_head(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the headers that GET has, and no body; a stream ends with its headers."""
    answered = asyncio.Event()

    async def send_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})
            answered.set()

    page = asyncio.ensure_future(app({**scope, "method": "GET"}, receive, send_headers))
    headers = asyncio.ensure_future(answered.wait())
    try:
        await asyncio.wait((page, headers), return_when=asyncio.FIRST_COMPLETED)
        if page.done():
            page.result()
    finally:
        page.cancel()
        headers.cancel()
        await asyncio.gather(page, headers, return_exceptions=True)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            names = {key.lower() for key, _ in headers}
            message["headers"] = [*headers, *((key, value) for key, value in HEADERS.items() if key not in names)]
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
