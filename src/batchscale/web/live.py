"""The live page: server-sent events with ids, so that a connection that was lost goes on where it was.

One small fragment is made for each change of a place, whoever asks; every client then waits for the next. Streams end
after some minutes and when the session does; browsers connect again by themselves.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

from batchscale.web.places import Place
from batchscale.web.standing import Standing, Standings

LOOK_EVERY_S = 1.0
BEAT_EVERY_S = 15.0
LONGEST_S = 600.0

Render = Callable[[Place, Standing], str]


class LivePages:
    """Streams of how places stand."""

    def __init__(self, standings: Standings, render: Render, most: int) -> None:
        self._standings, self._render, self._most = standings, render, most
        self._made: dict[str, tuple[str, str]] = {}
        self._open = 0

    @property
    def is_full(self) -> bool:
        """Whether no further stream is allowed."""
        return self._open >= self._most

    async def stream(self, place: Place, last_id: str | None, is_welcome: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Events of one place, from the one after ``last_id`` on; ends when the visitor is not welcome any more."""
        self._open += 1
        try:
            started = beat = time.monotonic()
            yield b"retry: 2000\n\n"
            while time.monotonic() - started < LONGEST_S and is_welcome():
                stamp, event = await asyncio.to_thread(self._event, place)
                if stamp != last_id:
                    last_id, beat = stamp, time.monotonic()
                    yield event
                elif time.monotonic() - beat > BEAT_EVERY_S:
                    beat = time.monotonic()
                    yield b": still here\n\n"
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._open -= 1

    def _event(self, place: Place) -> tuple[str, bytes]:
        standing = self._standings.look(place.path)
        made = self._made.get(place.id)
        if made is None or made[0] != standing.stamp:
            done = "" if standing.snapshot is None else _curve_stamp(standing)
            data = json.dumps({"html": self._render(place, standing), "state": standing.state, "curve": done})
            made = (standing.stamp, f"id: {standing.stamp}\nevent: standing\ndata: {data}\n\n")
            self._made[place.id] = made
        return made[0], made[1].encode()


def _curve_stamp(standing: Standing) -> str:
    """Text that changes when the curve may have: when trials ended or points moved."""
    assert standing.snapshot is not None
    ended = sum(study.complete + study.infeasible + study.incomplete for study in standing.snapshot.studies)
    return f"{ended} {standing.points}"
