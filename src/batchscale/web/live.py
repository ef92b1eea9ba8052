"""The live page: server-sent events with ids, so that a connection that was lost goes on where it was.

A folder is looked at once a second, however many pages watch it, and one fragment is made for each change; every page
then waits for the next. A crowd is told less often, because the run that it watches has the same processors: what
pages do with news costs by the page. Streams end after some minutes and when the session does; browsers connect again
by themselves.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from batchscale.web.records_folders import RecordsFolder
from batchscale.web.standing import Standing, Standings

LOOK_EVERY_S = 1.0
CROWD = 20  # pages that are told every second; of twice as many, each is told every other second
CURVE_PER_PAGE_S = 0.3  # a page that hears of a new curve asks for answer and chart
BEAT_EVERY_S = 15.0
LONGEST_S = 600.0

Render = Callable[[RecordsFolder, Standing], str]


@dataclass
class _Watched:
    """One folder that pages watch: its latest event, and when it was made."""

    stamp: str = ""
    event: bytes = b""
    looked_at: float = float("-inf")
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    pages: int = 0
    curve: str = ""
    curve_at: float = float("-inf")

    @property
    def every_s(self) -> float:
        """How often its pages are told."""
        return LOOK_EVERY_S * max(1.0, self.pages / CROWD)

    def tell_curve(self, version: str, *, is_alive: bool, now: float) -> str:
        """The version of the curve to tell: the new one, unless a crowd just fetched another and more will follow."""
        if not is_alive or now - self.curve_at >= CURVE_PER_PAGE_S * self.pages:
            if version != self.curve:
                self.curve_at = now
            self.curve = version
        return self.curve


class LivePages:
    """Streams of how folders stand. ``version`` tells which state of a folder's records charts are drawn from."""

    def __init__(
        self, standings: Standings, render: Render, most: int, version: Callable[[RecordsFolder], object] = lambda _: ""
    ) -> None:
        self._standings, self._render, self._most, self._version = standings, render, most, version
        self._watched: dict[str, _Watched] = {}
        self._open = 0

    @property
    def is_full(self) -> bool:
        """Whether no further stream is allowed."""
        return self._open >= self._most

    async def stream(
        self, folder: RecordsFolder, last_id: str | None, is_welcome: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Events of one folder, from the one after ``last_id`` on; ends when the visitor is not welcome any more."""
        watched = self._watched.setdefault(folder.id, _Watched())
        watched.pages += 1
        self._open += 1
        try:
            started = beat = time.monotonic()
            yield b"retry: 2000\n\n"
            while time.monotonic() - started < LONGEST_S and is_welcome():
                await self._look(folder, watched)
                if watched.stamp != last_id:
                    last_id, beat = watched.stamp, time.monotonic()
                    yield watched.event
                elif time.monotonic() - beat > BEAT_EVERY_S:
                    beat = time.monotonic()
                    yield b": still here\n\n"
                await asyncio.sleep(watched.every_s)
        finally:
            self._open -= 1
            watched.pages -= 1
            if watched.pages == 0:
                self._watched.pop(folder.id, None)

    async def _look(self, folder: RecordsFolder, watched: _Watched) -> None:
        """Look at the folder, unless another page just did."""
        async with watched.turn:
            if time.monotonic() - watched.looked_at >= watched.every_s:
                standing, newest = await asyncio.to_thread(self._read, folder)
                version = watched.tell_curve(newest, is_alive=standing.is_alive, now=time.monotonic())
                stamp = f"{standing.stamp}-{version}"
                if stamp != watched.stamp:
                    told = {"html": self._render(folder, standing), "state": standing.state, "curve": version}
                    watched.event = f"id: {stamp}\nevent: standing\ndata: {json.dumps(told)}\n\n".encode()
                    watched.stamp = stamp
                watched.looked_at = time.monotonic()

    def _read(self, folder: RecordsFolder) -> tuple[Standing, str]:
        return self._standings.look(folder.path), str(self._version(folder))
