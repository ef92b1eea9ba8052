"""Several curves on one chart, with the ratio of their critical batch sizes and their best learning rates."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from batchscale.analysis import compare
from batchscale.errors import BatchscaleError
from batchscale.figures import find_theme
from batchscale.web.comparison import comparison_chart, make_answers
from batchscale.web.pages.asked import find_row
from batchscale.web.pages.charts import DRAWING_POLICY
from batchscale.web.places import visible
from batchscale.web.server_parts import ServerParts

MOST = 8
CompareKeys = Annotated[list[str], Query(max_length=MOST)]


def make_routes(parts: ServerParts) -> APIRouter:
    """``/compare`` and its chart."""
    routes = APIRouter()

    @routes.get("/compare")
    def page(request: Request, k: CompareKeys = [], normalised: bool = False) -> Response:  # noqa: B006 - FastAPI copies it
        rows = [find_row(parts, key) for key in k]
        values: dict[str, Any] = {"rows": rows, "normalised": normalised, "result": None, "problem": "", "best": []}
        if len(rows) > 1:
            try:
                answers = make_answers(parts.shelf, rows)
                values |= {"result": compare(answers), "best": best_rates(answers)}
            except BatchscaleError as error:
                values["problem"] = visible(error, 400)
        return parts.pages.page(request, "compare.html", **values)

    @routes.get("/compare.svg")
    def chart(k: CompareKeys, theme: str = "light", normalised: bool = False) -> Response:
        rows = [find_row(parts, key) for key in k]
        drawing = comparison_chart(parts.shelf, rows, find_theme(theme), normalised=normalised)
        return Response(drawing, media_type="image/svg+xml", headers={"content-security-policy": DRAWING_POLICY})

    return routes


def best_rates(answers: dict[str, Any]) -> list[tuple[str, list[tuple[int, float]]]]:
    """The winning learning rate at every batch size, for each curve that has learning rates."""
    return [
        (name, [(size, rate) for size, rate in answer.curve.select("batch_size", "learning_rate").rows() if rate])
        for name, answer in answers.items()
        if "learning_rate" in answer.curve.columns
    ]
