"""Live pages and the cache of records: many visitors cost one read, and see the same."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from batchscale.errors import RecordsError
from batchscale.web import live, records_cache
from batchscale.web.live import LivePages
from batchscale.web.records_cache import RecordsCache
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.status import FolderStatus

VISITORS = 50
STORED = Path(__file__).parents[1] / "formats" / "format_1"


def test_many_pages_cost_one_read_and_receive_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "READ_EVERY_S", 0.01)
    reads = []

    class StatusReader:
        def read(self, path):
            reads.append(path)
            return FolderStatus("running", None, "1")

    pages = LivePages(StatusReader(), lambda _folder, status: status.state, 100, lambda _: "c")
    folder = RecordsFolder("id", tmp_path, "name")

    async def watch():
        turns = iter([True, False])
        return [event async for event in pages.stream(folder, None, lambda: next(turns))]

    async def crowd():
        return await asyncio.gather(*(watch() for _ in range(VISITORS)))

    received = asyncio.run(crowd())
    assert len(reads) <= 2  # the second if the first pages took longer than the interval
    assert all(events == received[0] and b'"curve": "c"' in events[1] for events in received)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "finished"
    shutil.copytree(STORED / "finished", path)
    return path


def test_visitors_at_once_cost_one_read_and_one_result(folder, monkeypatch):
    reads, results = [], []
    read = records_cache.read_records
    monkeypatch.setattr(records_cache, "read_records", lambda *args: (reads.append(args), read(*args))[1])
    cache = RecordsCache()
    threads = [
        threading.Thread(target=cache.result, args=(folder, "key", lambda records: results.append(records)))
        for _ in range(VISITORS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1 and len(results) == 1


def test_a_folder_at_rest_is_read_again_when_it_has_changed(folder, monkeypatch):
    monkeypatch.setattr(records_cache, "CHECK_EVERY_S", 0.0)
    cache = RecordsCache(is_busy=lambda _: False)
    before, first = cache.version(folder), cache.records(folder)
    assert cache.records(folder) is first
    study = next(folder.rglob(records_cache.STUDY_FILE))
    study.touch()
    assert cache.version(folder) != before and cache.records(folder) is not first


def test_a_folder_that_a_run_writes_is_read_again_after_a_pause(folder, monkeypatch):
    monkeypatch.setattr(records_cache, "CHECK_EVERY_S", 0.0)
    cache = RecordsCache(is_busy=lambda _: True)
    before = cache.version(folder)
    next(folder.rglob(records_cache.STUDY_FILE)).touch()
    assert cache.version(folder) == before  # the records from before
    monkeypatch.setattr(records_cache, "READ_EVERY_S", 0.0)
    monkeypatch.setattr(records_cache, "PAUSE", 0.0)
    assert cache.version(folder) != before


def test_records_in_the_middle_of_a_change_stay_as_they_were(folder, monkeypatch):
    monkeypatch.setattr(records_cache, "CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(records_cache, "READ_EVERY_S", 0.0)
    monkeypatch.setattr(records_cache, "PAUSE", 0.0)
    cache = RecordsCache(is_busy=lambda _: True)
    first = cache.records(folder)
    next(folder.rglob(records_cache.STUDY_FILE)).touch()

    def damaged(*_args):
        raise RecordsError("damaged")

    monkeypatch.setattr(records_cache, "read_records", damaged)
    assert cache.records(folder) is first
