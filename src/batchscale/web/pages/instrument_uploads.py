"""Recordings for an instrument: to learn from, and to be played by it."""

from urllib.parse import unquote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from batchscale.web.instruments import WebInstrument
from batchscale.web.pages.asked import ID
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts
from batchscale.web.uploads import save_upload


def make_routes(parts: ServerParts) -> APIRouter:
    """Uploads below ``/instruments/ID``."""
    routes = APIRouter()

    async def keep(request: Request, instrument: WebInstrument, folder: str) -> Response:
        if request.headers.get("content-type") != "application/octet-stream":
            raise RefusedError(415, "A recording is sent as application/octet-stream.")
        given = unquote(request.headers.get("x-file-name", ""))[:300]
        limits = parts.settings.limits
        file = await save_upload(request.stream(), instrument.path / folder, given, limits)
        detail = f"{instrument.name}/{folder}/{file.name}"
        parts.audit.add(request.state.identity.name, "upload", "done", detail)
        return PlainTextResponse(file.name, 201)

    @routes.post("/instruments/{id}/recordings")
    async def recordings(request: Request, id: ID) -> Response:
        return await keep(request, parts.instruments.find(id), "recordings")

    @routes.post("/instruments/{id}/voices")
    async def voices(request: Request, id: ID) -> Response:
        return await keep(request, parts.instruments.find(id), "voices")

    return routes
