"""Live pages: server-sent events with ids, so that a lost connection continues where it was.

A folder is read once a second, however many pages watch it, and one event is made for each change. Streams end after
some minutes and when the session does; browsers connect again by themselves.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from batchscale.web.records_folders import RecordsFolder
from batchscale.web.status import FolderStatus, StatusReader

READ_EVERY_S = 1.0
KEEP_ALIVE_S = 15.0
MAX_STREAM_S = 600.0

Render = Callable[[RecordsFolder, FolderStatus], str]


@dataclass
class _WatchedFolder:
    """The latest event of a folder, its id, and the number of pages that watch it."""

    id: str = ""
    event: bytes = b""
    read_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    pages: int = 0


class LivePages:
    """Streams of the status of folders. ``version`` returns the version of a folder's records, for charts."""

    def __init__(
        self, statuses: StatusReader, render: Render, max_streams: int,
        version: Callable[[RecordsFolder], object] = lambda _: "",
    ) -> None:  # fmt: skip
        self._statuses, self._render, self._max_streams, self._version = statuses, render, max_streams, version
        self._watched: dict[str, _WatchedFolder] = {}
        self._open = 0

    @property
    def is_full(self) -> bool:
        """True if no further stream is allowed."""
        return self._open >= self._max_streams

    async def stream(
        self, folder: RecordsFolder, last_id: str | None, is_allowed: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Yield the events of one folder after ``last_id``, as long as the visitor is allowed to read them."""
        watched = self._watched.setdefault(folder.id, _WatchedFolder())
        watched.pages += 1
        self._open += 1
        try:
            started = sent_at = time.monotonic()
            yield b"retry: 2000\n\n"
            while time.monotonic() - started < MAX_STREAM_S and is_allowed():
                await self._update(folder, watched)
                if watched.id != last_id:
                    last_id, sent_at = watched.id, time.monotonic()
                    yield watched.event
                elif time.monotonic() - sent_at > KEEP_ALIVE_S:
                    sent_at = time.monotonic()
                    yield b": still here\n\n"
                await asyncio.sleep(READ_EVERY_S)
        finally:
            self._open -= 1
            watched.pages -= 1
            if watched.pages == 0:
                self._watched.pop(folder.id, None)

    async def _update(self, folder: RecordsFolder, watched: _WatchedFolder) -> None:
        """Read the folder, unless another page just did."""
        async with watched.lock:
            if time.monotonic() - watched.read_at < READ_EVERY_S:
                return
            status, version = await asyncio.to_thread(self._read, folder)
            id_ = f"{status.stamp}-{version}"
            if id_ != watched.id:
                content = {"html": self._render(folder, status), "state": status.state, "curve": version}
                watched.event = f"id: {id_}\nevent: standing\ndata: {json.dumps(content)}\n\n".encode()
                watched.id = id_
            watched.read_at = time.monotonic()

    def _read(self, folder: RecordsFolder) -> tuple[FolderStatus, str]:
        return self._statuses.read(folder.path), str(self._version(folder))
