"""The list of instruments, a new one, and the page of one; what is done with it is in ``instrument_work``."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.web.instruments import MODELS, TrainingWish, WebInstrument
from batchscale.web.pages.asked import ID
from batchscale.web.pages.new import NAME
from batchscale.web.records_folders import make_records_folder, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.room import find_room
from batchscale.web.server_parts import ServerParts
from batchscale.web.uploads import KINDS


def make_routes(parts: ServerParts) -> APIRouter:
    """``/instruments`` and the page of each."""
    routes = APIRouter()

    @routes.get("/instruments")
    def overview(request: Request) -> Response:
        instruments = [(instrument, parts.jobs.is_alive(instrument.path)) for instrument in parts.instruments.all()]
        possible = parts.instruments.is_possible
        return parts.pages.page(request, "instruments.html", instruments=instruments, is_possible=possible)

    @routes.post("/instruments")
    def make(request: Request) -> Response:
        name = request.state.form.get("name", "")
        if not NAME.fullmatch(name):
            raise RefusedError(
                422, "A name has up to 51 small letters, digits, - and _, and begins with a letter or digit."
            )
        instrument = parts.instruments.make(name)
        parts.audit.add(request.state.identity.name, "make instrument", "done", name)
        return RedirectResponse(f"/instruments/{instrument.id}", 303)

    @routes.get("/instruments/{id}")
    def instrument(request: Request, id: ID) -> Response:
        instrument = parts.instruments.find(id)
        return parts.pages.page(request, "instrument.html", **_values(parts, instrument))

    @routes.get("/instruments/{id}/standing")
    def standing(request: Request, id: ID) -> Response:
        instrument = parts.instruments.find(id)
        return parts.pages.page(request, "instrument_standing.html", **_values(parts, instrument))

    return routes


def _values(parts: ServerParts, instrument: WebInstrument) -> dict[str, Any]:
    """What the page of an instrument shows."""
    job, standing = parts.jobs.find(instrument.path), parts.jobs.standing(instrument.path)
    trained = make_records_folder(instrument.path / "trained", instrument.path)
    words = parts.jobs.last_words(instrument.path).splitlines()[-12:]
    return {
        "instrument": instrument, "job": job, "standing": standing, "is_alive": parts.jobs.is_alive(instrument.path),
        "last_words": "\n".join(visible(line, 300) for line in words), "prepared": instrument.prepared,
        "losses": instrument.losses(), "models": MODELS, "kinds": ", ".join(KINDS), "limits": parts.settings.limits,
        "disk": find_room(instrument.path), "records_key": f"{trained.id}-0", "has_records": trained.path.is_dir(),
        "is_possible": parts.instruments.is_possible,
        "wish": instrument.wish or TrainingWish(),
    }  # fmt: skip
