"""A new experiment: the form beside the file it makes, the check, the estimate, the start."""

import re
import tomllib
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.errors import BatchscaleError, one_line
from batchscale.web.estimates import estimate
from batchscale.web.new_check import plan_text, try_text
from batchscale.web.new_form import form_fields, form_toml
from batchscale.web.own_files import find_own_file, list_own_files
from batchscale.web.places import make_place
from batchscale.web.refusals import RefusedError
from batchscale.web.runs import new_folder
from batchscale.web.server_parts import ServerParts
from batchscale.web.workload_fields import default_form, follow_workload, form_of, range_fields

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,50}")


def make_routes(parts: ServerParts) -> APIRouter:
    """``/new`` and its answers."""
    routes = APIRouter()

    def show(request: Request, form: dict[str, str], text: str, problem: str = "", status: int = 200) -> Response:
        from batchscale.workloads.listed import MORE_WORKLOADS, PAPER_WORKLOADS  # names only, no JAX

        return parts.pages.page(
            request, "new.html", status, **_fields(form), toml=text, name=form.get("name", ""), check=try_text(text),
            problem=problem, workloads=[*MORE_WORKLOADS, *PAPER_WORKLOADS],
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

    @routes.post("/new/fields")
    def fields(request: Request) -> Response:
        """For scripts: the fields that another workload or schedule asks for, and the file in any case."""
        typed = default_form() | request.state.form
        form = follow_workload(typed)
        text = form_toml(form)
        answer = parts.pages.page(request, "new_followed.html", **_fields(form), toml=text, check=try_text(text))
        if form == typed:
            answer.headers["hx-reswap"] = "none"  # what is being typed stays; the file comes all the same
        return answer

    @routes.post("/new/toml")
    def toml(request: Request) -> Response:
        text = form_toml(request.state.form)
        return parts.pages.page(request, "toml.html", toml=text, check=try_text(text))

    @routes.post("/new/check")
    def check(request: Request) -> Response:
        return parts.pages.page(request, "verdict.html", check=try_text(request.state.form.get("toml", "")), found=None)

    @routes.post("/new/estimate")
    def cost(request: Request) -> Response:
        text = request.state.form.get("toml", "")
        checked, found = try_text(text), None
        if not checked.problem:
            try:
                found = estimate(text)
            except BatchscaleError as error:
                checked = type(checked)(one_line(error, 600))
        return parts.pages.page(request, "verdict.html", check=checked, found=found)

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
        parts.places.all(fresh=True)
        return RedirectResponse(f"/x/{make_place(path, path.parent).id}-0", 303)

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


def _fields(form: dict[str, str]) -> dict[str, Any]:
    ranges = range_fields(form["workload"], form["schedule"])
    return {"form": form, "fields": form_fields(), "ranges": ranges}


def _read_form(text: str) -> dict[str, str]:
    """The fields that a text would come from; those at first where it cannot be read."""
    try:
        return form_of(tomllib.loads(text))
    except (ValueError, RecursionError):
        return default_form()
