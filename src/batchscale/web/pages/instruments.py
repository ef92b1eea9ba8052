"""The list of instruments, a new one, and the page of one; what is done with it is in ``instrument_work``."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.web.instruments import MODELS, InstrumentPlace, TrainingWish
from batchscale.web.pages.asked import ID
from batchscale.web.pages.new import NAME
from batchscale.web.places import make_place, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.room import find_room
from batchscale.web.server_parts import ServerParts
from batchscale.web.uploads import KINDS


def make_routes(parts: ServerParts) -> APIRouter:
    """``/instruments`` and the page of each."""
    routes = APIRouter()

    @routes.get("/instruments")
    def overview(request: Request) -> Response:
        places = [(place, parts.jobs.is_alive(place.path)) for place in parts.instruments.all()]
        possible = parts.instruments.is_possible
        return parts.pages.page(request, "instruments.html", places=places, is_possible=possible)

    @routes.post("/instruments")
    def make(request: Request) -> Response:
        name = request.state.form.get("name", "")
        if not NAME.fullmatch(name):
            raise RefusedError(
                422, "A name has up to 51 small letters, digits, - and _, and begins with a letter or digit."
            )
        place = parts.instruments.make(name)
        parts.audit.add(request.state.identity.name, "make instrument", "done", name)
        return RedirectResponse(f"/instruments/{place.id}", 303)

    @routes.get("/instruments/{id}")
    def instrument(request: Request, id: ID) -> Response:
        place = parts.instruments.find(id)
        return parts.pages.page(request, "instrument.html", **_values(parts, place))

    @routes.get("/instruments/{id}/standing")
    def standing(request: Request, id: ID) -> Response:
        place = parts.instruments.find(id)
        return parts.pages.page(request, "instrument_standing.html", **_values(parts, place))

    return routes


def _values(parts: ServerParts, place: InstrumentPlace) -> dict[str, Any]:
    """What the page of an instrument shows."""
    job, standing = parts.jobs.find(place.path), parts.jobs.standing(place.path)
    words = parts.jobs.last_words(place.path).splitlines()[-12:]
    return {
        "place": place, "job": job, "standing": standing, "is_alive": parts.jobs.is_alive(place.path),
        "last_words": "\n".join(visible(line, 300) for line in words), "prepared": place.prepared,
        "losses": place.losses(), "models": MODELS, "kinds": ", ".join(KINDS), "limits": parts.settings.limits,
        "disk": find_room(place.path), "records_key": make_place(place.path / "trained", place.path).id + "-0",
        "has_records": (place.path / "trained").is_dir(), "is_possible": parts.instruments.is_possible,
        "wish": place.wish or TrainingWish(),
    }  # fmt: skip
