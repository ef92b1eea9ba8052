"""Instruments: recordings in, a model out, sounds to listen to. Work is done by processes that outlive the page."""

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter
from fastapi import Path as PathPart
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from batchscale.web.chain import ChainStep
from batchscale.web.instruments import (
    MODELS,
    InstrumentPlace,
    TrainingWish,
    listen_steps,
    prepare_steps,
    train_steps,
    transfer_steps,
)
from batchscale.web.pages.new import NAME
from batchscale.web.places import make_place, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.room import find_room
from batchscale.web.server_parts import ServerParts
from batchscale.web.uploads import KINDS, save_upload

ID = Annotated[str, PathPart(pattern=r"^[0-9a-f]{16}$")]


def make_routes(parts: ServerParts) -> APIRouter:
    """``/instruments`` and what can be done with one."""
    routes = APIRouter()

    def start(request: Request, place: InstrumentPlace, kind: str, steps: list[ChainStep]) -> Response:
        if parts.jobs.count + parts.runs.count >= parts.settings.limits.runs:
            most = parts.settings.limits.runs
            raise RefusedError(429, f"At most {most} runs and jobs go on at once (--max-runs). Wait or stop one.")
        parts.jobs.start(place.path, kind, steps)
        parts.audit.add(request.state.identity.name, f"{kind} instrument", "done", place.name)
        return RedirectResponse(f"/instruments/{place.id}", 303)

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

    async def keep(request: Request, place: InstrumentPlace, folder: str) -> Response:
        if request.headers.get("content-type") != "application/octet-stream":
            raise RefusedError(415, "A recording is sent as application/octet-stream.")
        given = unquote(request.headers.get("x-file-name", ""))[:300]
        limits = parts.settings.limits
        file = await save_upload(request.stream(), place.path / folder, given, limits)
        detail = f"{place.name}/{folder}/{file.name}"
        parts.audit.add(request.state.identity.name, "upload", "done", detail)
        return PlainTextResponse(file.name, 201)

    @routes.post("/instruments/{id}/recordings")
    async def recordings(request: Request, id: ID) -> Response:
        return await keep(request, parts.instruments.find(id), "recordings")

    @routes.post("/instruments/{id}/voices")
    async def voices(request: Request, id: ID) -> Response:
        return await keep(request, parts.instruments.find(id), "voices")

    @routes.post("/instruments/{id}/prepare")
    def prepare(request: Request, id: ID) -> Response:
        place = parts.instruments.find(id)
        if not place.recordings:
            raise RefusedError(409, "There are no recordings yet: upload some first.")
        return start(request, place, "prepare", prepare_steps(place))

    @routes.post("/instruments/{id}/train")
    def train(request: Request, id: ID) -> Response:
        place = parts.instruments.find(id)
        if place.prepared is None:
            raise RefusedError(409, "The recordings are not prepared yet.")
        if parts.jobs.is_alive(place.path):
            raise RefusedError(409, "One thing at a time: something goes on here. Wait for it or stop it.")
        return start(request, place, "train", train_steps(place, TrainingWish.of_form(request.state.form)))

    @routes.post("/instruments/{id}/listen")
    def listen(request: Request, id: ID) -> Response:
        place = parts.instruments.find(id)
        if place.wish is None or not place.has_checkpoint:
            raise RefusedError(409, "Nothing has been trained yet.")
        return start(request, place, "listen", listen_steps(place, place.wish))

    @routes.post("/instruments/{id}/transfer")
    def transfer(request: Request, id: ID) -> Response:
        place, form = parts.instruments.find(id), request.state.form
        voice = next((path for path in place.voices if path.name == form.get("voice")), None)
        if voice is None:
            raise RefusedError(409, "Choose a recording that was uploaded to be played.")
        octaves = form.get("octaves", "0")
        if octaves not in ("-2", "-1", "0", "1", "2"):
            raise RefusedError(422, "The pitch moves by -2 to 2 octaves.")
        steps = transfer_steps(place, voice, int(octaves), own_loudness=form.get("own_loudness") == "true")
        return start(request, place, "transfer", steps)

    @routes.post("/instruments/{id}/stop")
    def stop(request: Request, id: ID) -> Response:
        place = parts.instruments.find(id)
        parts.jobs.stop(place.path)
        parts.audit.add(request.state.identity.name, "stop instrument", "done", place.name)
        return RedirectResponse(f"/instruments/{place.id}", 303)

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
