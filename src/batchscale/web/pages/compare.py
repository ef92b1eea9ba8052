"""Several curves on one chart, with the ratios of their critical batch sizes and their best learning rates."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from batchscale.analysis.comparison import compare
from batchscale.errors import BatchscaleError
from batchscale.web.charts import nearest_width
from batchscale.web.comparison import (
    NOT_SHARED,
    ComparedCurves,
    ComparisonQuery,
    best_rates,
    comparison_drawing,
    comparison_frame,
    comparison_picture,
    comparison_specification,
    make_curves,
)
from batchscale.web.pages.charts import WIDTH, ChartMakers, chart_response
from batchscale.web.pages.params import find_row
from batchscale.web.records_folders import visible
from batchscale.web.server_parts import ServerParts

MAX_COMPARED = 8
MAX_OTHERS = 500
CompareKeys = Annotated[list[str], Query(max_length=MAX_COMPARED)]


def make_routes(parts: ServerParts) -> APIRouter:
    """``/compare`` and its charts."""
    routes = APIRouter()

    def curves_of(keys: list[str]) -> ComparedCurves:
        return make_curves(parts.cache, [find_row(parts, key) for key in keys])

    @routes.get("/compare")
    def page(request: Request, k: CompareKeys = [], normalised: bool = False) -> Response:  # noqa: B006 - FastAPI copies it
        selected = [find_row(parts, key) for key in dict.fromkeys(key for key in k if key)]
        others = [row for row in parts.overview.rows() if row.points and row not in selected]
        return parts.pages.page(
            request, "compare.html", selected=selected,
            others=others[:MAX_OTHERS] if len(selected) < MAX_COMPARED else [],
            **_values(make_curves(parts.cache, selected), normalised),
        )  # fmt: skip

    @routes.get("/compare/{kind}.{suffix}")
    def chart(
        kind: Literal["curves", "rates"],
        suffix: Literal["svg", "png", "csv", "json"],
        k: CompareKeys,
        theme: Literal["light", "dark"] = "light",
        normalised: bool = False,
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        curves, query = curves_of(k), ComparisonQuery(kind, normalised, theme, nearest_width(width))
        makers: ChartMakers = {
            "json": comparison_specification, "csv": comparison_frame, "png": comparison_picture,
            "svg": comparison_drawing,
        }  # fmt: skip
        return chart_response(makers[suffix](parts.cache, curves, query), f"compare-{kind}.{suffix}", save=save)

    return routes


def _values(curves: ComparedCurves, normalised: bool) -> dict[str, Any]:
    """The values of the page; curves that share no batch size are drawn as measured, with the reason."""
    at = curves.common_size if len(curves.rows) > 1 else None
    values: dict[str, Any] = {
        "rows": list(curves.rows.values()), "left_out": list(curves.left_out.items()), "result": None, "problem": "",
        "best": [], "sizes": [], "at": at, "normalised": normalised and at is not None, "not_shared": NOT_SHARED,
    }  # fmt: skip
    if len(curves.rows) > 1:
        try:
            values["result"] = compare(curves.answers)
            values["best"] = best_rates(curves.answers)
            values["sizes"] = sorted({size for _, rates in values["best"] for size in rates})
        except BatchscaleError as error:
            values["problem"] = visible(error, 400)
    return values
