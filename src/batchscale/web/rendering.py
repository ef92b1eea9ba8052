"""Pages from templates: every value is escaped, every page gets the CSRF token of the session and the menu."""

from collections.abc import Sequence
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from batchscale import __version__
from batchscale.formatting import (
    duration,
    metaparameter_text,
    number_text,
    percent_text,
    rounded_text,
    size,
    span_text,
    whole_text,
)
from batchscale.planning.sentences import cost_text
from batchscale.web.plugin_pages import PluginPages
from batchscale.web.records_folders import visible
from batchscale.web.refusals import RefusedError
from batchscale.web.security import Scope
from batchscale.web.settings import WebSettings


class Pages:
    """Renders the templates of this package and of plug-ins."""

    def __init__(self, settings: WebSettings, plugins: Sequence[PluginPages] = ()) -> None:
        self._settings = settings
        packages = ["batchscale.web", *(plugin.package for plugin in plugins if plugin.package is not None)]
        self._environment = Environment(
            loader=ChoiceLoader([PackageLoader(name) for name in packages]),
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._environment.filters |= {
            "visible": visible, "number": number_text, "whole": whole_text, "rounded": rounded_text,
            "metaparameter": metaparameter_text, "money": cost_text, "percent": percent_text, "duration": duration,
            "size": size,
        }  # fmt: skip
        menu = [entry for plugin in plugins for entry in plugin.menu.items()]
        self._environment.globals |= {"span_text": span_text, "whole_text": whole_text, "plugin_menu": menu}

    def page(self, request: Request, template: str, status_code: int = 200, **values: Any) -> HTMLResponse:
        """Return a whole page."""
        return HTMLResponse(self.text(request.scope, template, **values), status_code)

    def text(self, scope: Scope, template: str, **values: Any) -> str:
        """Return the text of a page for the visitor of ``scope``."""
        identity = scope.get("state", {}).get("identity")
        return self._environment.get_template(template).render(
            identity=identity, csrf=identity.csrf if identity else "", read_only=self._settings.read_only,
            version=__version__, path=scope["path"], **values,
        )  # fmt: skip

    def part(self, template: str, **values: Any) -> str:
        """Return a part of a page that is the same for all visitors."""
        return self._environment.get_template(template).render(**values)

    def refuse(self, scope: Scope, refused: RefusedError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Return the response to a refused request: a page for people, plain text for programs, or the sign-in page."""
        accept = b",".join(value for key, value in scope["headers"] if key == b"accept")
        if refused.status == 401 and scope["method"] == "GET" and b"text/html" in accept:
            return 303, [(b"location", b"/sign-in")], b""
        if b"text/html" in accept:
            body = self.text(scope, "refused.html", status=refused.status, message=refused.message)
            return refused.status, [(b"content-type", b"text/html; charset=utf-8")], body.encode()
        return refused.status, [(b"content-type", b"text/plain; charset=utf-8")], f"{refused.message}\n".encode()
