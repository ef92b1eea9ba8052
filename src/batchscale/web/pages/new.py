"""A new experiment: the form beside the file it makes, the check, the estimate, the start."""

import re

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from batchscale.errors import BatchscaleError, one_line
from batchscale.web.estimates import estimate
from batchscale.web.new_form import FIELDS, check_text, default_form, form_toml, try_text
from batchscale.web.own_files import find_own_file, list_own_files
from batchscale.web.places import make_place
from batchscale.web.refusals import RefusedError
from batchscale.web.runs import new_folder
from batchscale.web.server_parts import ServerParts

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,50}")


def make_routes(parts: ServerParts) -> APIRouter:
    """``/new`` and its answers."""
    routes = APIRouter()

    def show(request: Request, form: dict[str, str], text: str, name: str = "", status: int = 200) -> Response:
        from batchscale.workloads.listed import MORE_WORKLOADS, PAPER_WORKLOADS  # names only, no JAX

        return parts.pages.page(
            request, "new.html", status, fields=FIELDS, form=form, toml=text, name=name, problem=try_text(text),
            workloads=[*MORE_WORKLOADS, *PAPER_WORKLOADS], own=list_own_files(parts.settings.own_files),
        )  # fmt: skip

    @routes.get("/new")
    def new(request: Request) -> Response:
        form = default_form()
        return show(request, form, form_toml(form))

    @routes.post("/new")
    def make(request: Request) -> Response:
        form = request.state.form
        return show(request, default_form() | form, form_toml(form), form.get("name", ""))

    @routes.post("/new/toml")
    def toml(request: Request) -> Response:
        text = form_toml(request.state.form)
        return parts.pages.page(request, "toml.html", toml=text, problem=try_text(text))

    @routes.post("/new/check")
    def check(request: Request) -> Response:
        problem = try_text(request.state.form.get("toml", ""))
        return parts.pages.page(request, "verdict.html", problem=problem, found=None)

    @routes.post("/new/estimate")
    def cost(request: Request) -> Response:
        text = request.state.form.get("toml", "")
        try:
            check_text(text)
            found, problem = estimate(text), ""
        except BatchscaleError as error:
            found, problem = None, one_line(error, 600)
        return parts.pages.page(request, "verdict.html", problem=problem, found=found)

    @routes.post("/new/start")
    def start(request: Request) -> Response:
        form = request.state.form
        name = form.get("name", "")
        if not NAME.fullmatch(name):
            raise RefusedError(
                422, "A name has up to 51 small letters, digits, - and _, and begins with a letter or digit."
            )
        path = new_folder(parts.settings, name)
        if form.get("own"):
            parts.runs.start_file(path, find_own_file(parts.settings.own_files, form["own"]))
        else:
            check_text(form.get("toml", ""))
            parts.runs.start_text(path, form["toml"])
        parts.audit.add(request.state.identity.name, "start", "done", name)
        parts.places.all(fresh=True)
        return RedirectResponse(f"/x/{make_place(path, path.parent).id}-0", 303)

    return routes
