"""Several curves on one chart, with the ratio of their critical batch sizes and their best learning rates."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from batchscale.analysis.comparison import compare
from batchscale.errors import BatchscaleError
from batchscale.web.charts import nearest_width
from batchscale.web.comparison import NOT_SHARED, ComparedCurves, best_rates, make_curves
from batchscale.web.comparison_charts import (
    ComparisonWish,
    comparison_drawing,
    comparison_frame,
    comparison_picture,
    comparison_specification,
)
from batchscale.web.pages.asked import find_row
from batchscale.web.pages.charts import WIDTH, ChartMakers, answer_chart
from batchscale.web.records_folders import visible
from batchscale.web.server_parts import ServerParts

MOST = 8
MOST_OTHERS = 500
CompareKeys = Annotated[list[str], Query(max_length=MOST)]


def make_routes(parts: ServerParts) -> APIRouter:
    """``/compare`` and its charts."""
    routes = APIRouter()

    def curves_of(keys: list[str]) -> ComparedCurves:
        return make_curves(parts.shelf, [find_row(parts, key) for key in keys])

    @routes.get("/compare")
    def page(request: Request, k: CompareKeys = [], normalised: bool = False) -> Response:  # noqa: B006 - FastAPI copies it
        chosen = [find_row(parts, key) for key in dict.fromkeys(key for key in k if key)]
        others = [row for row in parts.overview.rows() if row.points and row not in chosen]
        return parts.pages.page(
            request, "compare.html", chosen=chosen, others=others[:MOST_OTHERS] if len(chosen) < MOST else [],
            **_values(make_curves(parts.shelf, chosen), normalised),
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
        curves, wish = curves_of(k), ComparisonWish(kind, normalised, theme, nearest_width(width))
        makers: ChartMakers = {
            "json": comparison_specification, "csv": comparison_frame, "png": comparison_picture,
            "svg": comparison_drawing,
        }  # fmt: skip
        return answer_chart(makers[suffix](parts.shelf, curves, wish), f"compare-{kind}.{suffix}", save=save)

    return routes


def _values(curves: ComparedCurves, normalised: bool) -> dict[str, Any]:
    """What the page shows; curves that share no batch size are shown as measured, and the page says why."""
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
