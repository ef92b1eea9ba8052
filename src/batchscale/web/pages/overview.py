"""The first page: every experiment with its state and its curve as a small picture."""

import math
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from batchscale.figures.theme import find_theme
from batchscale.web.overview import ORDERS, OverviewQuery
from batchscale.web.pages.params import KEY, find_row
from batchscale.web.records_folders import visible
from batchscale.web.server_parts import ServerParts
from batchscale.web.status import STATES, disk_space

WIDTH, HEIGHT, MARGIN = 120, 36, 4


def make_routes(parts: ServerParts) -> APIRouter:
    """``/`` and the small pictures."""
    routes = APIRouter()

    @routes.get("/")
    def overview(
        request: Request,
        q: Annotated[str, Query(max_length=200)] = "",
        state: Annotated[str, Query(max_length=20)] = "",
        order: Annotated[str, Query(max_length=20)] = "name",
        down: bool = False,
        page: Annotated[int, Query(ge=1, le=100_000)] = 1,
    ) -> Response:
        query = OverviewQuery(q, state if state in STATES else "", order if order in ORDERS else "name", down, page)
        spaces = [(visible(folder.name), disk_space(folder)) for folder in parts.folders.served]
        disks = [(name, space) for name, space in spaces if space is not None]
        rows = parts.overview.page(query)
        return parts.pages.page(request, "overview.html", query=query, page=rows, states=STATES, disks=disks)

    @routes.get("/x/{key}/small.svg")
    def small(key: KEY, theme: Annotated[str, Query(max_length=10)] = "light") -> Response:
        row = find_row(parts, key)
        drawing = draw_small_curve(row.points, find_theme(theme).series[0])
        return Response(drawing, media_type="image/svg+xml")

    return routes


def draw_small_curve(points: Sequence[tuple[int, int]], colour: str) -> str:
    """Return a curve as an SVG document: logarithmic axes, a line, a dot for each point; no text, so nothing to escape.

    >>> draw_small_curve([(1, 100), (10, 10)], "#0071b1").count("<circle")
    2
    """
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
    if not points:
        return f"{head}</svg>"
    xs = _scaled([math.log(size) for size, _ in points], WIDTH)
    ys = [HEIGHT - y for y in _scaled([math.log(steps) for _, steps in points], HEIGHT)]
    places = [f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True)]
    line = f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in zip(xs, ys, strict=True))
    return f"{head}{line}{dots}</svg>"


def _scaled(values: list[float], room: int) -> list[float]:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return [MARGIN + (value - low) / span * (room - 2 * MARGIN) for value in values]
