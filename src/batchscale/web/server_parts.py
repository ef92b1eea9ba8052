"""The objects that the pages of one server share, and the templates that render them.

Every value of a template is escaped; every page gets the CSRF token of the session and the menu.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from batchscale import __version__
from batchscale.analysis.units import SizeUnit
from batchscale.formatting import (
    count_text,
    duration,
    metaparameter_text,
    number_text,
    percent_text,
    rough_duration,
    rounded_text,
    size,
    span_text,
    whole_text,
)
from batchscale.planning.sentences import cost_text
from batchscale.web.auth import AuditLog, Auth
from batchscale.web.live import LivePages
from batchscale.web.overview import Overview
from batchscale.web.plugin_pages import PluginPages
from batchscale.web.processes import ProcessStore
from batchscale.web.records_cache import READ_ERRORS, RecordsCache
from batchscale.web.records_folders import RecordsFolder, RecordsFolders, visible
from batchscale.web.refusals import RefusedError
from batchscale.web.runs import WebRuns
from batchscale.web.security import Scope
from batchscale.web.settings import WebSettings
from batchscale.web.status import FolderStatus, StatusReader, disk_space


class Pages:
    """Renders the templates of this package and of plug-ins."""

    def __init__(self, settings: WebSettings, plugins: Sequence[PluginPages] = ()) -> None:
        self._settings = settings
        packages = ["batchscale.web", "batchscale.report", *(p.package for p in plugins if p.package is not None)]
        self._environment = Environment(
            loader=ChoiceLoader([PackageLoader(name) for name in packages]),
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._environment.filters |= {
            "visible": visible, "number": number_text, "whole": whole_text, "rounded": rounded_text,
            "metaparameter": metaparameter_text, "money": cost_text, "percent": percent_text, "duration": duration,
            "rough_duration": rough_duration, "size": size,
        }  # fmt: skip
        menu = [entry for plugin in plugins for entry in plugin.menu.items()]
        self._environment.globals |= {
            "span_text": span_text, "whole_text": whole_text, "count_text": count_text, "plugin_menu": menu,
            "SizeUnit": SizeUnit,
        }  # fmt: skip

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
        if refused.status == 401 and scope["method"] in ("GET", "HEAD") and b"text/html" in accept:
            return 303, [(b"location", b"/sign-in")], b""
        if b"text/html" in accept:
            body = self.text(scope, "refused.html", status=refused.status, message=refused.message)
            return refused.status, [(b"content-type", b"text/html; charset=utf-8")], body.encode()
        return refused.status, [(b"content-type", b"text/plain; charset=utf-8")], f"{refused.message}\n".encode()


@dataclass
class ServerParts:
    """The objects behind the pages, made once for a server."""

    settings: WebSettings
    auth: Auth
    audit: AuditLog
    plugins: tuple[PluginPages, ...] = ()

    @cached_property
    def pages(self) -> Pages:
        """The templates."""
        return Pages(self.settings, self.plugins)

    @cached_property
    def folders(self) -> RecordsFolders:
        """The folders of records."""
        return RecordsFolders(self.settings.folders, self.settings.state)

    @cached_property
    def statuses(self) -> StatusReader:
        """The status of folders."""
        return StatusReader(self.runs.is_starting)

    @cached_property
    def cache(self) -> RecordsCache:
        """Records, and results computed from them."""
        return RecordsCache()

    @cached_property
    def runs(self) -> WebRuns:
        """Runs started here."""
        return WebRuns(self.settings)

    @cached_property
    def jobs(self) -> ProcessStore:
        """Sequences of commands started here."""
        return ProcessStore(self.settings.state / "jobs")

    @cached_property
    def overview(self) -> Overview:
        """Rows of the first page."""
        return Overview(self.folders, self.statuses, self.settings.state / "overview.json")

    @cached_property
    def live(self) -> LivePages:
        """Event streams."""

        def render(folder: RecordsFolder, status: FolderStatus) -> str:
            return self.pages.part("status.html", status=status, disk=disk_space(folder.path))

        def version(folder: RecordsFolder) -> object:
            try:
                return self.cache.version(folder.path)
            except READ_ERRORS:  # a run that has just begun has no records
                return ""

        return LivePages(self.statuses, render, self.settings.limits.streams, version)
