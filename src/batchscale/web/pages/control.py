"""Run control: stop as Ctrl-C does, continue, extend. Nothing is ever deleted."""

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.web.new_check import check_text
from batchscale.web.new_form import with_trials
from batchscale.web.pages.asked import KEY, find_records_folder
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts


def make_routes(parts: ServerParts) -> APIRouter:
    """``/x/KEY/stop`` and ``/x/KEY/continue``."""
    routes = APIRouter()

    @routes.post("/x/{key}/stop")
    def stop(request: Request, key: KEY) -> Response:
        folder, _ = find_records_folder(parts, key)
        parts.runs.stop(folder.path)
        parts.audit.add(request.state.identity.name, "stop", "done", folder.name)
        return RedirectResponse(f"/x/{key}", 303)

    @routes.post("/x/{key}/continue")
    def go_on(request: Request, key: KEY) -> Response:
        folder, _ = find_records_folder(parts, key)
        started = parts.runs.find(folder.path)
        if started is None:
            raise RefusedError(409, "This run was not started here. Continue it with the command that started it.")
        form = request.state.form
        if started.details.get("is_own_file"):
            parts.runs.start_file(folder.path, Path(started.details["file"]))
        else:
            text = form.get("toml") or parts.runs.text(folder.path) or ""
            if form.get("trials"):
                text = with_trials(text, _number(form["trials"]))
            check_text(text)
            parts.runs.start_text(folder.path, text)
        parts.audit.add(request.state.identity.name, "continue", "done", folder.name)
        return RedirectResponse(f"/x/{key}", 303)

    return routes


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise RefusedError(422, "Trials are a whole number.")
    return int(text)
