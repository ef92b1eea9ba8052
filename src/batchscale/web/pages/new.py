"""A new experiment: the form beside the file it makes, its check and estimate while it is filled in, and its start."""

import re
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.errors import BatchscaleError, one_line
from batchscale.spec.untrusted_text import parse_toml
from batchscale.web.experiment_check import estimate, find_own_file, list_own_files, plan_text, try_text
from batchscale.web.experiment_form import (
    default_form,
    follow_workload,
    form_fields,
    form_of,
    form_toml,
    range_fields,
)
from batchscale.web.records_folders import folder_id
from batchscale.web.refusals import RefusedError
from batchscale.web.runs import new_folder
from batchscale.web.server_parts import ServerParts

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,50}")


def make_routes(parts: ServerParts) -> APIRouter:
    """``/new``, the same with a workload's defaults, ``/new/start``, and the parts that its scripts request."""
    routes = APIRouter()
    _add_pages(routes, parts)
    _add_fragments(routes, parts)
    return routes


def _add_pages(routes: APIRouter, parts: ServerParts) -> None:
    def show(request: Request, form: dict[str, str], text: str, problem: str = "", status: int = 200) -> Response:
        from batchscale.workloads.published import MORE_WORKLOADS, PAPER_WORKLOADS  # names only, no JAX

        return parts.pages.page(
            request, "new.html", status, **_field_values(form), toml=text, name=form.get("name", ""),
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
        except (BatchscaleError, RefusedError) as error:  # the page again, with what was typed
            status = error.status if isinstance(error, RefusedError) else 422
            parts.audit.add(who, "POST /new/start", f"{status}", str(error))
            fields = (_read_form(text) | {"name": name}) if text else default_form()
            return show(request, fields, text or form_toml(fields), one_line(error, 600), status)
        parts.audit.add(who, "start", "done", name)
        parts.folders.all(fresh=True)
        return RedirectResponse(f"/x/{folder_id(path)}-0", 303)


def _add_fragments(routes: APIRouter, parts: ServerParts) -> None:
    @routes.post("/new/fields")
    def fields(request: Request) -> Response:
        """The fields of another workload or schedule, and the file in any case."""
        typed = default_form() | request.state.form
        form = follow_workload(typed)
        text = form_toml(form)
        answer = parts.pages.page(request, "new_followed.html", **_field_values(form), toml=text, check=try_text(text))
        if form == typed:
            answer.headers["hx-reswap"] = "none"  # what is being typed stays; the file is replaced all the same
        return answer

    @routes.post("/new/toml")
    def toml(request: Request) -> Response:
        text = form_toml(request.state.form)
        return parts.pages.page(request, "toml.html", toml=text, check=try_text(text))

    @routes.post("/new/check")
    def check(request: Request) -> Response:
        checked = try_text(request.state.form.get("toml", ""))
        return parts.pages.page(request, "checked_file.html", check=checked, cost=None)

    @routes.post("/new/estimate")
    def cost(request: Request) -> Response:
        text = request.state.form.get("toml", "")
        checked, run_cost = try_text(text), None
        if not checked.problem:
            try:
                run_cost = estimate(text, parts.settings.workers)
            except BatchscaleError as error:
                checked = type(checked)(one_line(error, 600))
        return parts.pages.page(request, "checked_file.html", check=checked, cost=run_cost)


def _field_values(form: dict[str, str]) -> dict[str, Any]:
    """The values that the templates of the fields need."""
    return {"form": form, "fields": form_fields(), "ranges": range_fields(form["workload"], form["schedule"])}


def _start(parts: ServerParts, name: str, text: str, own_file: str) -> Path:
    if not NAME.fullmatch(name):
        raise RefusedError(
            422, "A folder name must have up to 51 small letters, digits, - and _, and begin with a letter or digit."
        )
    path = new_folder(parts.settings, name)
    if own_file:
        parts.runs.start_file(path, find_own_file(parts.settings.own_files, own_file))
    else:
        plan_text(text)
        parts.runs.start_text(path, text)
    return path


def _read_form(text: str) -> dict[str, str]:
    """The fields of an experiment file; the default ones if it cannot be parsed."""
    try:
        return form_of(parse_toml(text))
    except ValueError:
        return default_form()
