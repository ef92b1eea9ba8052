"""The live page: server-sent events with ids, so that a connection that was lost goes on where it was.

A place is looked at once a second, however many pages watch it, and one fragment is made for each change; every page
then waits for the next. Streams end after some minutes and when the session does; browsers connect again by themselves.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from batchscale.web.places import Place
from batchscale.web.standing import Standing, Standings

LOOK_EVERY_S = 1.0
BEAT_EVERY_S = 15.0
LONGEST_S = 600.0

Render = Callable[[Place, Standing], str]


@dataclass
class _Watched:
    """One place that pages watch: its latest event, and when it was made."""

    stamp: str = ""
    event: bytes = b""
    looked_at: float = float("-inf")
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    pages: int = 0


class LivePages:
    """Streams of how places stand. ``version`` tells which state of a place's records charts are drawn from."""

    def __init__(
        self, standings: Standings, render: Render, most: int, version: Callable[[Place], object] = lambda _: ""
    ) -> None:
        self._standings, self._render, self._most, self._version = standings, render, most, version
        self._watched: dict[str, _Watched] = {}
        self._open = 0

    @property
    def is_full(self) -> bool:
        """Whether no further stream is allowed."""
        return self._open >= self._most

    async def stream(self, place: Place, last_id: str | None, is_welcome: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Events of one place, from the one after ``last_id`` on; ends when the visitor is not welcome any more."""
        watched = self._watched.setdefault(place.id, _Watched())
        watched.pages += 1
        self._open += 1
        try:
            started = beat = time.monotonic()
            yield b"retry: 2000\n\n"
            while time.monotonic() - started < LONGEST_S and is_welcome():
                await self._look(place, watched)
                if watched.stamp != last_id:
                    last_id, beat = watched.stamp, time.monotonic()
                    yield watched.event
                elif time.monotonic() - beat > BEAT_EVERY_S:
                    beat = time.monotonic()
                    yield b": still here\n\n"
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._open -= 1
            watched.pages -= 1
            if watched.pages == 0:
                self._watched.pop(place.id, None)

    async def _look(self, place: Place, watched: _Watched) -> None:
        """Look at the place, unless another page just did."""
        async with watched.turn:
            if time.monotonic() - watched.looked_at >= LOOK_EVERY_S:
                standing, version = await asyncio.to_thread(self._read, place)
                stamp = f"{standing.stamp}-{version}"
                if stamp != watched.stamp:
                    told = {"html": self._render(place, standing), "state": standing.state, "curve": version}
                    watched.event = f"id: {stamp}\nevent: standing\ndata: {json.dumps(told)}\n\n".encode()
                    watched.stamp = stamp
                watched.looked_at = time.monotonic()

    def _read(self, place: Place) -> tuple[Standing, str]:
        return self._standings.look(place.path), str(self._version(place))
