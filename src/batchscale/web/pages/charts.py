"""Charts of an experiment: drawings, pictures, data, and specifications for the page's script."""

from collections.abc import Callable
from typing import Annotated, Literal

import polars as pl
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

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
from batchscale.web.pages.asked import KEY, SMOOTH, asked_trials, find_records_folder, parse_trials
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts
from batchscale.web.trial_charts import LinkedWish, linked_data, linked_drawing, linked_specification
from batchscale.web.trials import TrialWish

WIDTH = Annotated[int | None, Query(ge=100, le=10_000)]
MadeChart = str | bytes | pl.DataFrame
ChartMakers = dict[str, Callable[..., MadeChart]]
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
        wish = ChartWish(kind, number, theme, steps, trials, smooth if trials else 0.0, nearest_width(width))
        makers: ChartMakers = {
            "json": chart_specification, "csv": chart_frame, "png": chart_picture, "svg": chart_drawing,
        }  # fmt: skip
        return answer_chart(makers[suffix](parts.shelf, folder, wish), f"{kind}.{suffix}", save=save)

    @routes.get("/x/{key}/linked.{suffix}")
    def linked(
        key: KEY,
        suffix: Literal["svg", "csv", "json"],
        wish: Annotated[TrialWish, Depends(asked_trials)],
        theme: Literal["light", "dark"] = "light",
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        folder, number = find_records_folder(parts, key)
        question = LinkedWish(number, wish, theme, nearest_width(width))
        makers: ChartMakers = {"json": linked_specification, "csv": linked_data, "svg": linked_drawing}
        return answer_chart(makers[suffix](parts.shelf, folder, question), f"linked.{suffix}", save=save)

    return routes


def answer_chart(made: MadeChart, name: str, *, save: bool) -> Response:
    """A chart in the form that its name says: drawing, picture, specification, or data, which is always saved."""
    suffix = name.rpartition(".")[2]
    headers = {"content-disposition": f'attachment; filename="{name}"'} if save or suffix == "csv" else {}
    if suffix == "svg":
        headers["content-security-policy"] = DRAWING_POLICY
    data = guarded_csv(made) if isinstance(made, pl.DataFrame) else made
    return Response(data, media_type=KINDS[suffix], headers=headers)
