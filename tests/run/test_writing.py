"""Records of several studies written at once."""

import threading
import time

from batchscale.run.writing import Writing


class FakeRun:
    def __init__(self, write=lambda: None):
        self.write = write
        self.turns = 0

    def write_due(self, until):
        self.turns += 1
        self.write()


def test_studies_are_written_at_the_same_time():
    together = threading.Barrier(3, timeout=60)
    runs = [FakeRun(together.wait) for _ in range(3)]
    writing = Writing(threads=3)
    written = writing.write(runs, time.monotonic() + 60)
    writing.close()
    assert {id(run) for run, _ in written} == {id(run) for run in runs}
    assert [error for _, error in written] == [None] * 3


def test_what_one_study_is_stopped_by_stops_no_other():
    def refuse():
        raise OSError("no room")

    runs = [FakeRun(), FakeRun(refuse), FakeRun()]
    writing = Writing(threads=2)
    errors = {id(run): error for run, error in writing.write(runs, time.monotonic() + 60)}
    writing.close()
    assert [str(errors[id(run)]) for run in runs] == ["None", "no room", "None"]


def test_those_that_time_does_not_suffice_for_are_left_for_the_next_call():
    runs = [FakeRun() for _ in range(10)]
    writing = Writing(threads=2)
    written = writing.write(runs, until=time.monotonic())
    writing.close()
    assert 1 <= len(written) <= 2
    assert sum(run.turns for run in runs) == len(written)


def test_nothing_to_write_is_written_at_once():
    writing = Writing()
    assert writing.write([], time.monotonic()) == []
    writing.close()
