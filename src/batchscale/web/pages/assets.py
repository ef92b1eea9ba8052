"""Scripts, styles and colours, all from this package or its libraries."""

import hashlib
import threading
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from batchscale.records.durable import replace_durably
from batchscale.report.style import page_style
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts

# Version and hash of the file that is not ours; a test checks them.
HTMX_VERSION = "2.0.10"
HTMX_SHA256 = "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de"

KINDS = {
    "charts.js": "text/javascript",
    "web.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "web.css": "text/css",
    "page.css": "text/css",
    "icon.svg": "image/svg+xml",
}


def make_routes(parts: ServerParts) -> APIRouter:
    """Everything below ``/static/``."""
    routes = APIRouter()
    charts = ChartScripts(parts.settings.state)
    made: dict[str, tuple[bytes, str]] = {}
    packages = dict.fromkeys(KINDS, "batchscale.web") | {n: str(p.package) for p in parts.plugins for n in p.static}
    kinds = KINDS | {name: kind for plugin in parts.plugins for name, kind in plugin.static.items()}

    @routes.get("/static/{name}")
    def asset(request: Request, name: str) -> Response:
        if name not in made:
            if name == "charts.js":
                made[name] = _with_tag(charts.read())
            elif name == "page.css":
                made[name] = _with_tag(page_style().encode())
            elif name in packages:
                made[name] = _with_tag(packaged_file(name, packages[name]))
            else:
                raise RefusedError(404, "There is no such file.")
        data, tag = made[name]
        headers = {"cache-control": "private, max-age=600", "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=f"{kinds[name]}; charset=utf-8", headers=headers)

    return routes


def _with_tag(data: bytes) -> tuple[bytes, str]:
    return data, f'"{hashlib.sha256(data).hexdigest()[:16]}"'


class ChartScripts:
    """Vega, Vega-Lite and vega-embed as one script, as the renderer of our drawings has them.

    Bundling takes seconds: it is done once for a version of the renderer and stored beside the token, where nobody else
    can write.
    """

    def __init__(self, state: Path) -> None:
        self._file = state / f"charts-{version('vl-convert-python')}.js"
        self._lock = threading.Lock()

    def read(self) -> bytes:
        """Return the script."""
        with self._lock:
            if not self._file.is_file():
                import vl_convert

                replace_durably(self._file, str(vl_convert.javascript_bundle()))  # type: ignore[call-arg]
            return self._file.read_bytes()


@cache
def packaged_file(name: str, package: str = "batchscale.web") -> bytes:
    """Return a static file of a package."""
    return (files(package) / "static" / name).read_bytes()
