"""Parts of the page of a new experiment, for its scripts: fields that follow the workload, the file, check and cost."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batchscale.errors import BatchscaleError, one_line
from batchscale.web.estimates import estimate
from batchscale.web.new_check import try_text
from batchscale.web.new_form import form_fields, form_toml
from batchscale.web.server_parts import ServerParts
from batchscale.web.workload_fields import default_form, follow_workload, range_fields


def make_routes(parts: ServerParts) -> APIRouter:
    """What ``/new`` asks for while it is filled in."""
    routes = APIRouter()

    @routes.post("/new/fields")
    def fields(request: Request) -> Response:
        """For scripts: the fields that another workload or schedule asks for, and the file in any case."""
        typed = default_form() | request.state.form
        form = follow_workload(typed)
        text = form_toml(form)
        answer = parts.pages.page(request, "new_followed.html", **shown_fields(form), toml=text, check=try_text(text))
        if form == typed:
            answer.headers["hx-reswap"] = "none"  # what is being typed stays; the file comes all the same
        return answer

    @routes.post("/new/toml")
    def toml(request: Request) -> Response:
        text = form_toml(request.state.form)
        return parts.pages.page(request, "toml.html", toml=text, check=try_text(text))

    @routes.post("/new/check")
    def check(request: Request) -> Response:
        return parts.pages.page(
            request, "checked_file.html", check=try_text(request.state.form.get("toml", "")), found=None
        )

    @routes.post("/new/estimate")
    def cost(request: Request) -> Response:
        text = request.state.form.get("toml", "")
        checked, found = try_text(text), None
        if not checked.problem:
            try:
                found = estimate(text)
            except BatchscaleError as error:
                checked = type(checked)(one_line(error, 600))
        return parts.pages.page(request, "checked_file.html", check=checked, found=found)

    return routes


def shown_fields(form: dict[str, str]) -> dict[str, Any]:
    """What the templates of the fields need."""
    ranges = range_fields(form["workload"], form["schedule"])
    return {"form": form, "fields": form_fields(), "ranges": ranges}
