"""Files of an instrument: sounds to listen to, the loss as a drawing, the model as a zip."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter
from fastapi import Path as PathPart
from starlette.responses import FileResponse, Response, StreamingResponse

from batchscale.figures.theme import find_theme
from batchscale.instruments.web.instruments import WebInstruments
from batchscale.web.downloads import zip_files
from batchscale.web.pages.charts import DRAWING_POLICY
from batchscale.web.pages.params import ID
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts

WIDTH, HEIGHT, LEFT, BOTTOM = 560, 240, 62, 30
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def make_routes(parts: ServerParts, instruments: WebInstruments) -> APIRouter:
    """Return the routes ``sounds/NAME``, ``loss.svg`` and ``model.zip`` below ``/instruments/ID``."""
    routes = APIRouter()

    @routes.get("/instruments/{id}/sounds/{name}")
    def sound(
        id: ID,
        name: Annotated[str, PathPart(pattern=r"^[a-z0-9-]{1,60}\.wav$")],
        save: bool = False,
    ) -> Response:
        instrument = instruments.find(id)
        file = next((path for path in instrument.sounds if path.name == name), None)
        if file is None:
            raise RefusedError(404, "There is no such sound.")
        kind = "attachment" if save else "inline"
        return FileResponse(file, media_type="audio/wav", filename=name, content_disposition_type=kind)

    @routes.get("/instruments/{id}/loss.svg")
    def loss(id: ID, theme: Literal["light", "dark"] = "light") -> Response:
        instrument, colours = instruments.find(id), find_theme(theme)
        drawing = draw_loss(instrument.losses(), colours.series[0], colours.text, colours.grid)
        return Response(drawing, media_type="image/svg+xml", headers={"content-security-policy": DRAWING_POLICY})

    @routes.get("/instruments/{id}/model.zip")
    def model(id: ID) -> Response:
        instrument = instruments.find(id)
        if instrument.model is None:
            raise RefusedError(404, "There is no model yet.")
        pieces = zip_files(instrument.model, parts.settings.limits.zip_bytes)
        headers = {"content-disposition": f'attachment; filename="instrument-{instrument.id}.zip"'}
        return StreamingResponse(pieces, media_type="application/zip", headers=headers)

    return routes


def draw_loss(points: Sequence[tuple[int, float]], line: str, text: str, grid: str) -> str:
    """Return the loss against steps as an SVG document; the axis of losses begins at 0.

    >>> draw_loss([(0, 8.0), (10, 4.0)], "#00f", "#000", "#ccc").count("<polyline")
    1
    """
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
    finite = [(step, loss) for step, loss in points if math.isfinite(loss)]
    if not finite:
        return f"{head}</svg>"
    last = max(1, max(step for step, _ in finite))
    top = 1.05 * max(loss for _, loss in finite) or 1.0
    high = HEIGHT - BOTTOM - 12
    parts = [_rule(HEIGHT - BOTTOM - share * high, f"{share * top:.3g}", text, grid) for share in _SHARES]
    parts += [
        f'<text x="{LEFT + share * (WIDTH - LEFT - 14):.1f}" y="{HEIGHT - 10}" fill="{text}" font-size="12" '
        f'font-family="sans-serif" text-anchor="middle">{share * last:,.0f}</text>'
        for share in _SHARES
    ]  # fmt: skip
    places = " ".join(
        f"{LEFT + step / last * (WIDTH - LEFT - 14):.1f},{HEIGHT - BOTTOM - loss / top * high:.1f}"
        for step, loss in finite
    )
    return f'{head}{"".join(parts)}<polyline points="{places}" fill="none" stroke="{line}" stroke-width="2"/></svg>'


def _rule(y: float, label: str, text: str, grid: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - 14}" y1="{y:.1f}" y2="{y:.1f}" stroke="{grid}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" fill="{text}" font-size="12" font-family="sans-serif" '
        f'text-anchor="end">{label}</text>'
    )
