"""A new experiment: the form beside the file it makes, and its start. What scripts ask for is in ``new_parts``."""

import re
import tomllib
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.errors import BatchscaleError, one_line
from batchscale.web.new_check import plan_text, try_text
from batchscale.web.new_form import form_toml
from batchscale.web.own_files import find_own_file, list_own_files
from batchscale.web.pages.new_parts import shown_fields
from batchscale.web.records_folders import make_records_folder
from batchscale.web.refusals import RefusedError
from batchscale.web.runs import new_folder
from batchscale.web.server_parts import ServerParts
from batchscale.web.workload_fields import default_form, follow_workload, form_of

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,50}")


def make_routes(parts: ServerParts) -> APIRouter:
    """``/new``, the same with a workload's defaults, and ``/new/start``."""
    routes = APIRouter()

    def show(request: Request, form: dict[str, str], text: str, problem: str = "", status: int = 200) -> Response:
        from batchscale.workloads.published import MORE_WORKLOADS, PAPER_WORKLOADS  # names only, no JAX

        return parts.pages.page(
            request, "new.html", status, **shown_fields(form), toml=text, name=form.get("name", ""),
            check=try_text(text), problem=problem, workloads=[*MORE_WORKLOADS, *PAPER_WORKLOADS],
            own=list_own_files(parts.settings.own_files),
        )  # fmt: skip

    @routes.get("/new")
    def new(request: Request) -> Response:
        form = default_form()
        return show(request, form, form_toml(form))

    @routes.post("/new")
    def make(request: Request) -> Response:
        form = default_form() | request.state.form
        return show(request, form, form_toml(form))

    @routes.post("/new/workload")
    def defaults(request: Request) -> Response:
        form = follow_workload(default_form() | request.state.form, again=True)
        return show(request, form, form_toml(form))

    @routes.post("/new/start")
    def start(request: Request) -> Response:
        form = request.state.form
        who, name, text = request.state.identity.name, form.get("name", ""), form.get("toml", "")
        try:
            path = _start(parts, name, text, form.get("own", ""))
        except (BatchscaleError, RefusedError) as error:  # the page again, with what was written
            status = error.status if isinstance(error, RefusedError) else 422
            parts.audit.add(who, "POST /new/start", f"{status}", str(error))
            shown = (_read_form(text) | {"name": name}) if text else default_form()
            return show(request, shown, text or form_toml(shown), one_line(error, 600), status)
        parts.audit.add(who, "start", "done", name)
        parts.folders.all(fresh=True)
        return RedirectResponse(f"/x/{make_records_folder(path, path.parent).id}-0", 303)

    return routes


def _start(parts: ServerParts, name: str, text: str, own: str) -> Path:
    if not NAME.fullmatch(name):
        raise RefusedError(
            422, "The name of a folder has up to 51 small letters, digits, - and _, and begins with a letter or digit."
        )
    path = new_folder(parts.settings, name)
    if own:
        parts.runs.start_file(path, find_own_file(parts.settings.own_files, own))
    else:
        plan_text(text)
        parts.runs.start_text(path, text)
    return path


def _read_form(text: str) -> dict[str, str]:
    """The fields that a text would come from; those at first where it cannot be read."""
    try:
        return form_of(tomllib.loads(text))
    except (ValueError, RecursionError):
        return default_form()
