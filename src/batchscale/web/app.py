"""The application: pages behind the security middleware, and the one place where errors become responses."""

import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from batchscale.errors import BatchscaleError
from batchscale.web.auth import AuditLog, Auth
from batchscale.web.pages import (
    assets,
    atlas,
    charts,
    compare,
    data,
    experiment,
    new,
    overview,
    plan,
    runs,
    session,
)
from batchscale.web.plugin_pages import load_plugin_pages
from batchscale.web.refusals import RefusedError
from batchscale.web.security import SecurityMiddleware
from batchscale.web.server_parts import ServerParts
from batchscale.web.settings import WebSettings

PAGES = (
    session, assets, overview, experiment, charts, compare, atlas, new, plan, runs, data,
)  # fmt: skip


def create_app(settings: WebSettings, auth: Auth) -> SecurityMiddleware:
    """Return the web interface as an ASGI application."""
    audit = AuditLog(settings.state)
    plugins = load_plugin_pages()
    parts = ServerParts(settings, auth, audit, plugins)
    app = FastAPI(title="batchscale", docs_url=None, redoc_url=None, openapi_url=None)
    for make_routes in (*(page.make_routes for page in PAGES), *(plugin.make_routes for plugin in plugins)):
        app.include_router(make_routes(parts))

    def answer(request: Request, error: Exception) -> Response:
        refused = _as_refusal(error)
        if refused.status >= 500 and refused is not error:  # a refusal is an answer, not a mistake of ours
            logging.getLogger("batchscale.web").error("%s %s", request.method, request.url.path, exc_info=error)
        if request.method == "POST":
            who = getattr(request.state, "identity", None)
            audit.add(who.name if who else "stranger", f"POST {request.url.path}", f"{refused.status}", refused.message)
        status, headers, body = parts.pages.refuse(request.scope, refused)
        is_page = any(value.startswith(b"text/html") for key, value in headers if key == b"content-type")
        kind = HTMLResponse if is_page else PlainTextResponse
        return kind(body, status, {"location": "/sign-in"} if status == 303 else None)

    for kind in (RefusedError, BatchscaleError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
    uploads = tuple(plugin.uploads for plugin in plugins if plugin.uploads is not None)
    return SecurityMiddleware(_quiet(app), settings, auth, audit, parts.pages.refuse, uploads)


def _as_refusal(error: Exception) -> RefusedError:
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, BatchscaleError):
        return RefusedError(422, str(error))
    if isinstance(error, RequestValidationError):
        return RefusedError(422, "This address names something that does not exist, or a value out of its range.")
    if isinstance(error, HTTPException) and error.status_code < 500:
        return RefusedError(error.status_code, "There is no such page." if error.status_code == 404 else "Not allowed.")
    return RefusedError(500, "The server failed to handle the request; see its log. The records are unchanged.")


def _quiet(app: FastAPI):  # type: ignore[no-untyped-def]
    """Wrap the application so that it does not raise an error again after its response: our log has it."""

    async def answering(scope, receive, send):  # type: ignore[no-untyped-def]
        started = False

        async def sending(message):  # type: ignore[no-untyped-def]
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, sending)
        except Exception:
            if not started or scope["type"] != "http":
                raise

    return answering
