"""Charts of an experiment: drawings, pictures, data, and specifications for the page's script."""

from typing import Annotated, Literal

import polars as pl
from fastapi import APIRouter, Depends, Query
from starlette.responses import JSONResponse, Response

from batchscale.web.charts import (
    ChartWish,
    chart_drawing,
    chart_frame,
    chart_kinds,
    chart_picture,
    chart_specification,
    nearest_width,
)
from batchscale.web.downloads import guarded_csv
from batchscale.web.pages.asked import KEY, SMOOTH, asked_trials, find_place, parse_trials
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts
from batchscale.web.trial_charts import LinkedWish, linked_data, linked_drawing, linked_specification
from batchscale.web.trials import TrialWish

WIDTH = Annotated[int | None, Query(ge=100, le=10_000)]
DRAWING_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


def make_routes(parts: ServerParts) -> APIRouter:
    """``/x/KEY/chart/KIND.SUFFIX`` and ``/x/KEY/linked.SUFFIX``."""
    routes = APIRouter()

    @routes.get("/x/{key}/chart/{kind}.{suffix}")
    def chart(
        key: KEY,
        kind: str,
        suffix: Literal["svg", "png", "csv", "json"],
        theme: Literal["light", "dark"] = "light",
        steps: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        t: Annotated[list[str], Query(max_length=200)] = [],  # noqa: B006 - FastAPI copies it
        smooth: SMOOTH = 0.0,
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        place, number = find_place(parts, key)
        if kind not in chart_kinds():
            raise RefusedError(404, "There is no such kind of chart.")
        trials = parse_trials(t) if kind == "training" else ()
        wish = ChartWish(kind, number, theme, steps, trials, smooth if trials else 0.0, nearest_width(width))
        headers = {"content-disposition": f'attachment; filename="{kind}.{suffix}"'} if save or suffix == "csv" else {}
        if suffix == "json":
            data = chart_specification(parts.shelf, place, wish)
            return Response(data, media_type="application/json", headers=headers)
        if suffix == "csv":
            return _csv(chart_frame(parts.shelf, place, wish), headers)
        if suffix == "png":
            return Response(chart_picture(parts.shelf, place, wish), media_type="image/png", headers=headers)
        return _drawing(chart_drawing(parts.shelf, place, wish), headers)

    @routes.get("/x/{key}/linked.{suffix}")
    def linked(
        key: KEY,
        suffix: Literal["svg", "csv", "json"],
        wish: Annotated[TrialWish, Depends(asked_trials)],
        theme: Literal["light", "dark"] = "light",
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        place, number = find_place(parts, key)
        question = LinkedWish(number, wish, theme, nearest_width(width))
        headers = {"content-disposition": f'attachment; filename="linked.{suffix}"'} if save or suffix == "csv" else {}
        if suffix == "json":
            return JSONResponse(linked_specification(parts.shelf, place, question), headers=headers)
        if suffix == "csv":
            return _csv(linked_data(parts.shelf, place, question), headers)
        return _drawing(linked_drawing(parts.shelf, place, question), headers)

    return routes


def _drawing(text: str, headers: dict[str, str]) -> Response:
    return Response(text, media_type="image/svg+xml", headers=headers | {"content-security-policy": DRAWING_POLICY})


def _csv(frame: pl.DataFrame, headers: dict[str, str]) -> Response:
    return Response(guarded_csv(frame), media_type="text/csv; charset=utf-8", headers=headers)
