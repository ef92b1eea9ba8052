"""Journals stay open while there are handles, and any number of trials may run with few of them."""

import resource
from itertools import count
from pathlib import Path

import pytest
from records_fakes import WORKLOAD, make_rows, make_study, make_trial

from batchscale.records.durable import FileSystem
from batchscale.records.tree.journals import Handles, Journals
from batchscale.records.tree.layout import StudyPaths
from batchscale.records.tree.open_study import open_study

TRIALS = range(1, 6)


class CountingFileSystem(FileSystem):
    """Knows which journals are open, and how often one was opened."""

    def __init__(self):
        self.open, self.times = set(), 0

    def open_append(self, path):
        handle = super().open_append(path)
        self.open.add(handle)
        self.times += 1
        return handle

    def close(self, handle):
        self.open.discard(handle)
        super().close(handle)


def make_journals(root, fs, handles, batch_size=8):
    paths = StudyPaths.of(root, WORKLOAD, batch_size)
    paths.working.mkdir(parents=True)
    return Journals(fs, paths, pytest.fail, handles)


def append_all(journals, step):
    for trial_id in TRIALS:
        journals.append(trial_id, make_rows(trial_id, [step]), sync=False)


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_no_more_journals_stay_open_than_there_are_handles(tmp_path, limit):
    fs, handles = CountingFileSystem(), Handles(limit)
    journals = make_journals(tmp_path, fs, handles)
    for step in (0, 10, 20):
        append_all(journals, step)
        assert len(fs.open) == limit
    assert all(journals.load(trial_id).steps == (0, 10, 20) for trial_id in TRIALS)
    journals.close_all()
    assert not fs.open
    assert all(handles.acquire() for _ in range(limit))
    assert not handles.acquire()


def test_the_journal_that_was_not_used_for_longest_is_closed(tmp_path):
    fs = CountingFileSystem()
    journals = make_journals(tmp_path, fs, Handles(2))
    for trial_id, step in ((1, 0), (2, 0), (1, 10), (3, 0), (1, 20)):
        journals.append(trial_id, make_rows(trial_id, [step]), sync=False)
    assert fs.times == 3, "trial 1 was used again before trial 3 took the handle of trial 2"


def test_studies_share_the_handles_and_one_never_closes_anothers(tmp_path):
    fs, handles = CountingFileSystem(), Handles(3)
    first, second = (make_journals(tmp_path, fs, handles, size) for size in (8, 16))
    for step in (0, 10):
        append_all(first, step)
        append_all(second, step)
        assert len(fs.open) == 3
    assert all(one.load(trial_id).steps == (0, 10) for one in (first, second) for trial_id in TRIALS)


def test_more_trials_run_than_the_system_gives_handles(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = next(number for number in count(16, 16) if number > _highest_handle())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 64, before[1]))
    try:
        with open_study(tmp_path, make_study()) as writer:
            for trial_id in range(1, 201):
                writer.append(trial_id, make_rows(trial_id, [0]), sync=False)
            for trial_id in (1, 200):
                writer.append(trial_id, make_rows(trial_id, [20]), sync=False)
                writer.commit(make_trial(trial_id))
            assert len(writer.running_trials()) == 198
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _highest_handle():
    return max(int(entry.name) for entry in Path("/dev/fd").iterdir())
