"""What an instrument gives away: sounds to listen to, the loss as a drawing, the model as a zip."""

from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Path as PathPart
from starlette.responses import FileResponse, Response, StreamingResponse

from batchscale.figures.theme import find_theme
from batchscale.web.downloads import zip_files
from batchscale.web.loss_curve import draw_loss
from batchscale.web.pages.asked import ID
from batchscale.web.pages.charts import DRAWING_POLICY
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts


def make_routes(parts: ServerParts) -> APIRouter:
    """``/instruments/ID/sounds/NAME``, ``/instruments/ID/loss.svg`` and ``/instruments/ID/model.zip``."""
    routes = APIRouter()

    @routes.get("/instruments/{id}/sounds/{name}")
    def sound(
        id: ID,
        name: Annotated[str, PathPart(pattern=r"^[a-z0-9-]{1,60}\.wav$")],
        save: bool = False,
    ) -> Response:
        instrument = parts.instruments.find(id)
        found = next((path for path in instrument.sounds if path.name == name), None)
        if found is None:
            raise RefusedError(404, "There is no such sound.")
        kind = "attachment" if save else "inline"
        return FileResponse(found, media_type="audio/wav", filename=name, content_disposition_type=kind)

    @routes.get("/instruments/{id}/loss.svg")
    def loss(id: ID, theme: Literal["light", "dark"] = "light") -> Response:
        instrument, colours = parts.instruments.find(id), find_theme(theme)
        drawing = draw_loss(instrument.losses(), colours.series[0], colours.text, colours.grid)
        return Response(drawing, media_type="image/svg+xml", headers={"content-security-policy": DRAWING_POLICY})

    @routes.get("/instruments/{id}/model.zip")
    def model(id: ID) -> Response:
        instrument = parts.instruments.find(id)
        if instrument.model is None:
            raise RefusedError(404, "There is no model yet.")
        pieces = zip_files(instrument.model, parts.settings.limits.zip_bytes)
        headers = {"content-disposition": f'attachment; filename="instrument-{instrument.id}.zip"'}
        return StreamingResponse(pieces, media_type="application/zip", headers=headers)

    return routes
