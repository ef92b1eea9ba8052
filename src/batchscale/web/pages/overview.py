"""The first page: everything there is, with its state and its curve."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from batchscale.figures.theme import find_theme
from batchscale.web.overview import ORDERS, Wish
from batchscale.web.pages.asked import KEY, find_row
from batchscale.web.records_folders import visible
from batchscale.web.room import find_room
from batchscale.web.server_parts import ServerParts
from batchscale.web.small_curve import draw_small_curve
from batchscale.web.standing import STATES


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
        wish = Wish(q, state if state in STATES else "", order if order in ORDERS else "name", down, page)
        found = parts.overview.page(wish)
        rooms = [(visible(folder.name), find_room(folder)) for folder in parts.folders.served]
        disks = [(name, room) for name, room in rooms if room is not None]
        return parts.pages.page(request, "overview.html", wish=wish, found=found, states=STATES, disks=disks)

    @routes.get("/x/{key}/small.svg")
    def small(key: KEY, theme: Annotated[str, Query(max_length=10)] = "light") -> Response:
        row = find_row(parts, key)
        drawing = draw_small_curve(row.points, find_theme(theme).series[0])
        return Response(drawing, media_type="image/svg+xml")

    return routes
