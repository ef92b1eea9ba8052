"""Scripts, styles and colours: all from this package or its libraries, none from elsewhere."""

import hashlib
import threading
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

from batchscale.figures import DARK, LIGHT
from batchscale.report import style_variables
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts

# Version and hash of what is not ours; a test holds the file to it.
HTMX_VERSION = "2.0.10"
HTMX_SHA256 = "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de"

OWN = {
    "web.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "web.css": "text/css",
    "icon.svg": "image/svg+xml",
}
_BUNDLING = threading.Lock()


def make_routes(_parts: ServerParts) -> APIRouter:
    """Everything below ``/static/``."""
    routes = APIRouter()

    @routes.get("/static/{name}")
    def asset(name: str) -> Response:
        if name == "colours.css":
            return _asset(colours().encode(), "text/css")
        if name == "charts.js":
            with _BUNDLING:
                return _asset(chart_scripts(), "text/javascript")
        if name not in OWN:
            raise RefusedError(404, "There is no such file.")
        return _asset(own_file(name), OWN[name])

    return routes


def _asset(data: bytes, kind: str) -> Response:
    headers = {"cache-control": "private, max-age=600", "etag": f'"{hashlib.sha256(data).hexdigest()[:16]}"'}
    return Response(data, media_type=f"{kind}; charset=utf-8", headers=headers)


@cache
def own_file(name: str) -> bytes:
    """A file of this package."""
    return (files("batchscale.web") / "static" / name).read_bytes()


@cache
def chart_scripts() -> bytes:
    """Vega, Vega-Lite and vega-embed as one script, as the renderer of our drawings has them."""
    import vl_convert

    return str(vl_convert.javascript_bundle()).encode()  # type: ignore[call-arg]


@cache
def colours() -> str:
    """The colours of charts and pages, light and dark."""
    light, dark = style_variables(LIGHT), style_variables(DARK)
    return f":root{{{light};color-scheme:light dark}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
