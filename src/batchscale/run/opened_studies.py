"""The studies of a run, opened several at once and closed together.

Opening a study reads all that is known of its trials. Where files are near, that is work for a processor, of which
Python uses one at a time: more threads than two only stand in each other's way. Where they are far (a network's file
system), it is waiting, which threads share.
"""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from batchscale.errors import RunError, StorageError
from batchscale.run.disk import OF_ONE_STUDY
from batchscale.run.run_settings import RunSettings
from batchscale.spec.plan import Plan, Study
from batchscale.study.resuming import open_study_run
from batchscale.study.study_facts import DamagedStudyError
from batchscale.study.study_run import StudyRun

LOOK_AT_STUDY = "Put the study back from a copy, or move it out of the tree, and run again."
FEWEST_THREADS, MOST_THREADS = 2, 16


@contextlib.contextmanager
def opened_studies(root: Path, plan: Plan, settings: RunSettings) -> Iterator[tuple[list[StudyRun], list[str]]]:
    """The studies, and what is wrong with those that are left out because something in them is damaged."""
    with _opening(root, plan, settings) as turns:
        runs: list[StudyRun] = []
        damaged: list[str] = []
        for turn in turns:
            try:
                runs.append(turn.result())
            except DamagedStudyError as error:
                damaged.append(str(error))
            except StorageError as error:
                if error.errno not in OF_ONE_STUDY:
                    raise
                damaged.append(f"{error} {LOOK_AT_STUDY}")
        if not runs:
            raise RunError("\n".join(damaged))
        yield runs, damaged


@contextlib.contextmanager
def _opening(root: Path, plan: Plan, settings: RunSettings) -> Iterator[list[Future[StudyRun]]]:
    def open_one(study: Study) -> StudyRun:
        return open_study_run(root, study, plan.experiment, settings.retry_incomplete)

    with ThreadPoolExecutor(1, thread_name_prefix="opening") as pool:
        clock_s, processor_s = time.perf_counter(), time.process_time()
        first = pool.submit(open_one, plan.studies[0])
    threads = threads_for(time.perf_counter() - clock_s, time.process_time() - processor_s)
    with ThreadPoolExecutor(threads, thread_name_prefix="opening") as pool:
        turns = [first, *(pool.submit(open_one, study) for study in plan.studies[1:])]
        try:
            yield turns
        finally:
            for turn in turns:
                if not turn.cancel() and turn.exception() is None:
                    turn.result().close()


def threads_for(clock_s: float, processor_s: float) -> int:
    """How many studies to open at once, when one took so much of the clock and so much of a processor.

    >>> threads_for(1.0, 0.9), threads_for(1.0, 0.2), threads_for(1.0, 0.0)
    (2, 5, 16)
    """
    wanted = clock_s / max(processor_s, 1e-6)
    return round(min(MOST_THREADS, max(FEWEST_THREADS, wanted)))
