"""Records of several studies results at once."""

import threading
import time

from batchscale.run.loop import ParallelWriter


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
    writer = ParallelWriter(threads=3)
    results = writer.write(runs, time.monotonic() + 60)
    writer.close()
    assert {id(run) for run, _ in results} == {id(run) for run in runs}
    assert [error for _, error in results] == [None] * 3


def test_what_one_study_is_stopped_by_stops_no_other():
    def refuse():
        raise OSError("no room")

    runs = [FakeRun(), FakeRun(refuse), FakeRun()]
    writer = ParallelWriter(threads=2)
    errors = {id(run): error for run, error in writer.write(runs, time.monotonic() + 60)}
    writer.close()
    assert [str(errors[id(run)]) for run in runs] == ["None", "no room", "None"]


def test_those_that_time_does_not_suffice_for_are_left_for_the_next_call():
    runs = [FakeRun() for _ in range(10)]
    writer = ParallelWriter(threads=2)
    results = writer.write(runs, until=time.monotonic())
    writer.close()
    assert 1 <= len(results) <= 2
    assert sum(run.turns for run in runs) == len(results)


def test_nothing_to_write_is_written_at_once():
    writer = ParallelWriter()
    assert writer.write([], time.monotonic()) == []
    writer.close()
