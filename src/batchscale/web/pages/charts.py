"""Charts of an experiment: drawings, pictures, data, and specifications for the page's script."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from batchscale.web.charts import (
    ChartWish,
    chart_drawing,
    chart_frame,
    chart_kinds,
    chart_picture,
    chart_specification,
)
from batchscale.web.pages.asked import KEY, find_place, parse_trials
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts

DRAWING_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


def make_routes(parts: ServerParts) -> APIRouter:
    """``/x/KEY/chart/KIND.SUFFIX``."""
    routes = APIRouter()

    @routes.get("/x/{key}/chart/{kind}.{suffix}")
    def chart(
        key: KEY,
        kind: str,
        suffix: Literal["svg", "png", "csv", "json"],
        theme: Literal["light", "dark"] = "light",
        steps: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        t: Annotated[list[str], Query(max_length=200)] = [],  # noqa: B006 - FastAPI copies it
        save: bool = False,
    ) -> Response:
        place, number = find_place(parts, key)
        if kind not in chart_kinds():
            raise RefusedError(404, "There is no such kind of chart.")
        wish = ChartWish(kind, number, theme, steps, parse_trials(t) if kind == "training" else ())
        headers = {"content-disposition": f'attachment; filename="{kind}.{suffix}"'} if save or suffix == "csv" else {}
        if suffix == "json":
            return JSONResponse(chart_specification(parts.shelf, place, wish), headers=headers)
        if suffix == "csv":
            frame = chart_frame(parts.shelf, place, wish)
            return Response(frame.write_csv(), media_type="text/csv; charset=utf-8", headers=headers)
        if suffix == "png":
            return Response(chart_picture(parts.shelf, place, wish), media_type="image/png", headers=headers)
        headers["content-security-policy"] = DRAWING_POLICY
        return Response(chart_drawing(parts.shelf, place, wish), media_type="image/svg+xml", headers=headers)

    return routes
