"""What is done with an instrument: prepared, trained, listened to, played. Processes do it, which outlive the page."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.web.chain import ChainStep
from batchscale.web.instruments import (
    TrainingWish,
    WebInstrument,
    listen_steps,
    prepare_steps,
    train_steps,
    transfer_steps,
)
from batchscale.web.pages.asked import ID
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts


def make_routes(parts: ServerParts) -> APIRouter:
    """Work below ``/instruments/ID``, and its stop."""
    routes = APIRouter()

    def start(request: Request, instrument: WebInstrument, kind: str, steps: list[ChainStep]) -> Response:
        if parts.jobs.count + parts.runs.count >= parts.settings.limits.runs:
            most = parts.settings.limits.runs
            raise RefusedError(429, f"At most {most} runs and jobs go on at once (--max-runs). Wait or stop one.")
        parts.jobs.start(instrument.path, kind, steps)
        parts.audit.add(request.state.identity.name, f"{kind} instrument", "done", instrument.name)
        return RedirectResponse(f"/instruments/{instrument.id}", 303)

    @routes.post("/instruments/{id}/prepare")
    def prepare(request: Request, id: ID) -> Response:
        instrument = parts.instruments.find(id)
        if not instrument.recordings:
            raise RefusedError(409, "There are no recordings yet: upload some first.")
        return start(request, instrument, "prepare", prepare_steps(instrument))

    @routes.post("/instruments/{id}/train")
    def train(request: Request, id: ID) -> Response:
        instrument = parts.instruments.find(id)
        if instrument.prepared is None:
            raise RefusedError(409, "The recordings are not prepared yet.")
        if parts.jobs.is_alive(instrument.path):
            raise RefusedError(409, "One thing at a time: something goes on here. Wait for it or stop it.")
        return start(request, instrument, "train", train_steps(instrument, TrainingWish.of_form(request.state.form)))

    @routes.post("/instruments/{id}/listen")
    def listen(request: Request, id: ID) -> Response:
        instrument = parts.instruments.find(id)
        if instrument.wish is None or not instrument.has_checkpoint:
            raise RefusedError(409, "Nothing has been trained yet.")
        return start(request, instrument, "listen", listen_steps(instrument, instrument.wish))

    @routes.post("/instruments/{id}/transfer")
    def transfer(request: Request, id: ID) -> Response:
        instrument, form = parts.instruments.find(id), request.state.form
        voice = next((path for path in instrument.voices if path.name == form.get("voice")), None)
        if voice is None:
            raise RefusedError(409, "Choose a recording that was uploaded to be played.")
        octaves = form.get("octaves", "0")
        if octaves not in ("-2", "-1", "0", "1", "2"):
            raise RefusedError(422, "The pitch moves by -2 to 2 octaves.")
        steps = transfer_steps(instrument, voice, int(octaves), own_loudness=form.get("own_loudness") == "true")
        return start(request, instrument, "transfer", steps)

    @routes.post("/instruments/{id}/stop")
    def stop(request: Request, id: ID) -> Response:
        instrument = parts.instruments.find(id)
        parts.jobs.stop(instrument.path)
        parts.audit.add(request.state.identity.name, "stop instrument", "done", instrument.name)
        return RedirectResponse(f"/instruments/{instrument.id}", 303)

    return routes
