"""What the pages of one server share."""

from dataclasses import dataclass
from functools import cached_property

from batchscale.web.access import Access
from batchscale.web.audit import AuditLog
from batchscale.web.live import LivePages
from batchscale.web.overview import Overview
from batchscale.web.plugin_pages import PluginPages
from batchscale.web.processes import ProcessStore
from batchscale.web.records_folders import RecordsFolder, RecordsFolders
from batchscale.web.rendering import Pages
from batchscale.web.room import find_room
from batchscale.web.runs import WebRuns
from batchscale.web.settings import WebSettings
from batchscale.web.shelf import WORK_ERRORS, OpenRecords
from batchscale.web.standing import Standing, Standings


@dataclass
class ServerParts:
    """The objects behind the pages, made once for a server."""

    settings: WebSettings
    access: Access
    audit: AuditLog
    plugins: tuple[PluginPages, ...] = ()

    @cached_property
    def pages(self) -> Pages:
        """The templates."""
        return Pages(self.settings, self.plugins)

    @cached_property
    def folders(self) -> RecordsFolders:
        """Where records are."""
        return RecordsFolders(self.settings.folders)

    @cached_property
    def standings(self) -> Standings:
        """How runs stand."""
        return Standings()

    @cached_property
    def shelf(self) -> OpenRecords:
        """Opened records."""
        return OpenRecords()

    @cached_property
    def runs(self) -> WebRuns:
        """Processes started here."""
        return WebRuns(self.settings)

    @cached_property
    def jobs(self) -> ProcessStore:
        """Sequences of commands started here."""
        return ProcessStore(self.settings.state / "jobs")

    @cached_property
    def overview(self) -> Overview:
        """Rows of the first page."""
        return Overview(self.folders, self.standings, self.settings.state / "overview.json")

    @cached_property
    def live(self) -> LivePages:
        """Event streams."""

        def render(folder: RecordsFolder, standing: Standing) -> str:
            is_starting = standing.state == "records" and self.runs.is_starting(folder.path)
            disk = find_room(folder.path)
            return self.pages.part("standing.html", standing=standing, is_starting=is_starting, disk=disk)

        def version(folder: RecordsFolder) -> object:
            try:
                return self.shelf.version(folder.path)
            except WORK_ERRORS:  # a run that has only just begun has no records
                return ""

        return LivePages(self.standings, render, self.settings.limits.streams, version)
