"""Charts of an experiment: drawings, pictures, data, and specifications for the page's script."""

from collections.abc import Callable
from typing import Annotated, Literal

import polars as pl
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from batchscale.web.charts import (
    ChartQuery,
    chart_drawing,
    chart_frame,
    chart_kinds,
    chart_picture,
    chart_specification,
    nearest_width,
)
from batchscale.web.downloads import guarded_csv
from batchscale.web.pages.params import KEY, SMOOTH, find_records_folder, parse_trials, trial_query
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts
from batchscale.web.trials import LinkedQuery, TrialQuery, linked_data, linked_drawing, linked_specification

WIDTH = Annotated[int | None, Query(ge=100, le=10_000)]
ChartContent = str | bytes | pl.DataFrame
ChartMakers = dict[str, Callable[..., ChartContent]]
KINDS = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
}
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
        folder, number = find_records_folder(parts, key)
        if kind not in chart_kinds():
            raise RefusedError(404, "There is no such kind of chart.")
        trials = parse_trials(t) if kind == "training" else ()
        query = ChartQuery(kind, number, theme, steps, trials, smooth if trials else 0.0, nearest_width(width))
        makers: ChartMakers = {
            "json": chart_specification, "csv": chart_frame, "png": chart_picture, "svg": chart_drawing,
        }  # fmt: skip
        return chart_response(makers[suffix](parts.cache, folder, query), f"{kind}.{suffix}", save=save)

    @routes.get("/x/{key}/linked.{suffix}")
    def linked(
        key: KEY,
        suffix: Literal["svg", "csv", "json"],
        query: Annotated[TrialQuery, Depends(trial_query)],
        theme: Literal["light", "dark"] = "light",
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        folder, number = find_records_folder(parts, key)
        question = LinkedQuery(number, query, theme, nearest_width(width))
        makers: ChartMakers = {"json": linked_specification, "csv": linked_data, "svg": linked_drawing}
        return chart_response(makers[suffix](parts.cache, folder, question), f"linked.{suffix}", save=save)

    return routes


def chart_response(content: ChartContent, name: str, *, save: bool) -> Response:
    """Return a chart as drawing, picture, specification or data, by the suffix of its name; data is always saved."""
    suffix = name.rpartition(".")[2]
    headers = {"content-disposition": f'attachment; filename="{name}"'} if save or suffix == "csv" else {}
    if suffix == "svg":
        headers["content-security-policy"] = DRAWING_POLICY
    data = guarded_csv(content) if isinstance(content, pl.DataFrame) else content
    return Response(data, media_type=KINDS[suffix], headers=headers)
