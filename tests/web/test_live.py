"""The live page: what one visitor is told at once a crowd is told in turn, and the end of a run to all at once."""

import asyncio

import pytest

from batchscale.web import freed_memory, live
from batchscale.web.freed_memory import FreedMemory
from batchscale.web.live import CROWD, CURVE_PER_PAGE_S, LOOK_EVERY_S, LivePages, _Watched
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.standing import Standing


def test_one_visitor_hears_of_every_curve_after_a_moment_and_a_crowd_of_some():
    def heard(pages):
        watched = _Watched(pages=pages)
        told = [watched.tell_curve(str(second), is_alive=True, now=float(second)) for second in range(60)]
        return len(dict.fromkeys(told))

    assert heard(1) == heard(3) == 60
    assert heard(50) == 60 / (CURVE_PER_PAGE_S * 50)


def test_the_last_curve_of_a_run_is_told_without_delay_however_many_watch():
    watched = _Watched(pages=500)
    assert watched.tell_curve("first", is_alive=True, now=0.0) == "first"
    assert watched.tell_curve("second", is_alive=True, now=1.0) == "first"
    assert watched.tell_curve("last", is_alive=False, now=2.0) == "last"


def test_a_curve_that_was_held_back_is_told_when_its_time_has_come():
    watched = _Watched(pages=10)  # three seconds
    watched.tell_curve("first", is_alive=True, now=0.0)
    assert watched.tell_curve("second", is_alive=True, now=2.9) == "first"
    assert watched.tell_curve("second", is_alive=True, now=3.0) == "second"


@pytest.mark.parametrize(
    ("pages", "every_s"), [(1, LOOK_EVERY_S), (CROWD, LOOK_EVERY_S), (3 * CROWD, 3 * LOOK_EVERY_S)]
)
def test_a_crowd_is_told_in_turn(pages, every_s):
    assert _Watched(pages=pages).every_s == every_s


def test_many_pages_cost_one_look_and_hear_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.01)
    looks = []

    class Standings:
        def look(self, path):
            looks.append(path)
            return Standing("running", None, "1")

    pages = LivePages(Standings(), lambda _place, standing: standing.state, 100, lambda _: "c")
    folder = RecordsFolder("id", tmp_path, "name")

    async def watch():
        turns = iter([True, False])
        return [event async for event in pages.stream(folder, None, lambda: next(turns))]

    async def crowd():
        return await asyncio.gather(*(watch() for _ in range(2 * CROWD)))

    heard = asyncio.run(crowd())
    assert len(looks) == 1
    assert all(events == heard[0] and b'"curve": "c"' in events[1] for events in heard)


def test_free_memory_is_given_back_now_and_then(monkeypatch):
    calls = []
    monkeypatch.setattr(freed_memory, "_trim", lambda: calls.append)
    freed = FreedMemory()
    assert [freed.give_back() for _ in range(3)] == [True, False, False]
    monkeypatch.setattr(freed_memory, "AT_MOST_EVERY_S", 0.0)
    assert freed.give_back()
    assert calls == [0, 0]


def test_a_system_without_such_a_call_keeps_its_memory(monkeypatch):
    monkeypatch.setattr(freed_memory, "_trim", lambda: None)
    assert not FreedMemory().give_back()
