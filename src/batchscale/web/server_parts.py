"""The objects that the pages of one server share."""

from dataclasses import dataclass
from functools import cached_property

from batchscale.web.auth import AuditLog, Auth
from batchscale.web.live import LivePages
from batchscale.web.overview import Overview
from batchscale.web.plugin_pages import PluginPages
from batchscale.web.processes import ProcessStore
from batchscale.web.records_cache import READ_ERRORS, RecordsCache
from batchscale.web.records_folders import RecordsFolder, RecordsFolders
from batchscale.web.rendering import Pages
from batchscale.web.runs import WebRuns
from batchscale.web.settings import WebSettings
from batchscale.web.status import FolderStatus, StatusReader, disk_space


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
        return RecordsFolders(self.settings.folders)

    @cached_property
    def statuses(self) -> StatusReader:
        """The status of folders."""
        return StatusReader()

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
            is_starting = status.state == "records" and self.runs.is_starting(folder.path)
            disk = disk_space(folder.path)
            return self.pages.part("status.html", status=status, is_starting=is_starting, disk=disk)

        def version(folder: RecordsFolder) -> object:
            try:
                return self.cache.version(folder.path)
            except READ_ERRORS:  # a run that has just begun has no records
                return ""

        return LivePages(self.statuses, render, self.settings.limits.streams, version)
