"""The pages below ``/instruments``: the list, one instrument with its uploads, and the work that is started on it."""

import re
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from batchscale.instruments.web import sounds
from batchscale.instruments.web.instruments import MODELS, TrainingSettings, WebInstrument, WebInstruments
from batchscale.instruments.web.steps import listen_steps, prepare_steps, train_steps, transfer_steps
from batchscale.instruments.web.uploads import KINDS, save_upload
from batchscale.web.command_sequence import CommandStep
from batchscale.web.pages.new import NAME
from batchscale.web.pages.params import ID
from batchscale.web.plugin_pages import PluginPages
from batchscale.web.records_folders import make_records_folder, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts
from batchscale.web.status import disk_space


def make_routes(parts: ServerParts) -> APIRouter:
    """Return all routes below ``/instruments``."""
    instruments = WebInstruments(parts.settings.folders[0])
    routes = APIRouter()
    for group in (_page_routes, _upload_routes, _work_routes, sounds.make_routes):
        routes.include_router(group(parts, instruments))
    return routes


PAGES = PluginPages(
    make_routes,
    package="batchscale.instruments.web",
    static={"instruments.js": "text/javascript", "instruments.css": "text/css"},
    menu={"/instruments": "Instruments"},
    uploads=re.compile(r"/instruments/[0-9a-f]{16}/(recordings|voices)"),
)


def _page_routes(parts: ServerParts, instruments: WebInstruments) -> APIRouter:
    routes = APIRouter()

    @routes.get("/instruments")
    def overview(request: Request) -> Response:
        rows = [(instrument, parts.jobs.is_alive(instrument.path)) for instrument in instruments.all()]
        possible = instruments.is_possible
        return parts.pages.page(request, "instruments.html", instruments=rows, is_possible=possible)

    @routes.post("/instruments")
    def make(request: Request) -> Response:
        name = request.state.form.get("name", "")
        if not NAME.fullmatch(name):
            raise RefusedError(
                422, "A name has up to 51 small letters, digits, - and _, and begins with a letter or digit."
            )
        instrument = instruments.make(name)
        parts.audit.add(request.state.identity.name, "make instrument", "done", name)
        return RedirectResponse(f"/instruments/{instrument.id}", 303)

    @routes.get("/instruments/{id}")
    def instrument(request: Request, id: ID) -> Response:
        values = _page_values(parts, instruments.find(id), instruments.is_possible)
        return parts.pages.page(request, "instrument.html", **values)

    @routes.get("/instruments/{id}/standing")
    def standing(request: Request, id: ID) -> Response:
        values = _page_values(parts, instruments.find(id), instruments.is_possible)
        return parts.pages.page(request, "instrument_standing.html", **values)

    return routes


def _upload_routes(parts: ServerParts, instruments: WebInstruments) -> APIRouter:
    routes = APIRouter()

    async def store(request: Request, instrument: WebInstrument, folder: str) -> Response:
        if request.headers.get("content-type") != "application/octet-stream":
            raise RefusedError(415, "A recording is sent as application/octet-stream.")
        file_name = unquote(request.headers.get("x-file-name", ""))[:300]
        file = await save_upload(request.stream(), instrument.path / folder, file_name, parts.settings.limits)
        detail = f"{instrument.name}/{folder}/{file.name}"
        parts.audit.add(request.state.identity.name, "upload", "done", detail)
        return PlainTextResponse(file.name, 201)

    @routes.post("/instruments/{id}/recordings")
    async def recordings(request: Request, id: ID) -> Response:
        return await store(request, instruments.find(id), "recordings")

    @routes.post("/instruments/{id}/voices")
    async def voices(request: Request, id: ID) -> Response:
        return await store(request, instruments.find(id), "voices")

    return routes


def _work_routes(parts: ServerParts, instruments: WebInstruments) -> APIRouter:
    """Work is done by processes that outlive the page."""
    routes = APIRouter()

    def start(request: Request, instrument: WebInstrument, kind: str, steps: list[CommandStep]) -> Response:
        if parts.jobs.count + parts.runs.count >= parts.settings.limits.runs:
            most = parts.settings.limits.runs
            raise RefusedError(429, f"At most {most} of runs and jobs may run at once (--max-runs). Wait or stop one.")
        parts.jobs.start(instrument.path, kind, steps)
        parts.audit.add(request.state.identity.name, f"{kind} instrument", "done", instrument.name)
        return RedirectResponse(f"/instruments/{instrument.id}", 303)

    @routes.post("/instruments/{id}/prepare")
    def prepare(request: Request, id: ID) -> Response:
        instrument = instruments.find(id)
        if not instrument.recordings:
            raise RefusedError(409, "There are no recordings yet: upload some first.")
        return start(request, instrument, "prepare", prepare_steps(instrument))

    @routes.post("/instruments/{id}/train")
    def train(request: Request, id: ID) -> Response:
        instrument = instruments.find(id)
        if instrument.prepared is None:
            raise RefusedError(409, "The recordings are not prepared yet.")
        if parts.jobs.is_alive(instrument.path):
            raise RefusedError(409, "Only one job may run at a time. Wait for it or stop it.")
        settings = TrainingSettings.of_form(request.state.form)
        return start(request, instrument, "train", train_steps(instrument, settings))

    @routes.post("/instruments/{id}/listen")
    def listen(request: Request, id: ID) -> Response:
        instrument = instruments.find(id)
        if instrument.settings is None or not instrument.has_checkpoint:
            raise RefusedError(409, "Nothing has been trained yet.")
        return start(request, instrument, "listen", listen_steps(instrument, instrument.settings))

    @routes.post("/instruments/{id}/transfer")
    def transfer(request: Request, id: ID) -> Response:
        instrument, form = instruments.find(id), request.state.form
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
        instrument = instruments.find(id)
        parts.jobs.stop(instrument.path)
        parts.audit.add(request.state.identity.name, "stop instrument", "done", instrument.name)
        return RedirectResponse(f"/instruments/{instrument.id}", 303)

    return routes


def _page_values(parts: ServerParts, instrument: WebInstrument, is_possible: bool) -> dict[str, Any]:
    """Return the values of an instrument's template."""
    job, standing = parts.jobs.find(instrument.path), parts.jobs.status(instrument.path)
    trained = make_records_folder(instrument.path / "trained", instrument.path)
    log_lines = parts.jobs.last_output(instrument.path).splitlines()[-12:]
    return {
        "instrument": instrument, "job": job, "standing": standing, "is_alive": parts.jobs.is_alive(instrument.path),
        "log_tail": "\n".join(visible(line, 300) for line in log_lines), "prepared": instrument.prepared,
        "losses": instrument.losses(), "models": MODELS, "kinds": ", ".join(KINDS), "limits": parts.settings.limits,
        "disk": disk_space(instrument.path), "records_key": f"{trained.id}-0", "has_records": trained.path.is_dir(),
        "is_possible": is_possible, "settings": instrument.settings or TrainingSettings(),
    }  # fmt: skip
