"""A run from its first check to its last record: the folder's lock, the studies, the runner, the loop.

All errors in the plan and the settings are found before the first trial starts and before anything is written.
"""

import contextlib
import math
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from batchscale.errors import RecordsError, RunError, StorageError, StudyLockedError
from batchscale.machine import DISK_FULL
from batchscale.records.durable import REAL, make_folders, storing
from batchscale.records.tree.layout import RunPaths
from batchscale.run.collect_status import collect_status
from batchscale.run.disk import OF_ONE_STUDY, DiskGuard, require_room
from batchscale.run.loop import RunLoop, RunResult
from batchscale.run.make_runner import make_runner, num_devices
from batchscale.run.scheduler import STRETCH_S
from batchscale.run.settings import RUNNERS, LoopSettings, RunSettings
from batchscale.run.signals import StopFlag
from batchscale.run.status import RunStatus, mark_unfinished, write_status
from batchscale.run.trackers.tracker import TrackerName, parse_tracker
from batchscale.run.tracking import Tracking, open_tracking
from batchscale.spec.plan import Plan, Study
from batchscale.study.identity import DamagedStudyError, check_folder, is_stored_plan, read_plan, write_plan
from batchscale.study.study import StudyRun, open_study_run

LOCK_TRIES = 6
MAX_OPEN_FILES = 16384
MOST_STATES_GB = 1e9
MIN_THREADS, MAX_THREADS = 2, 16
RESTORE_STUDY = "Restore the study from a copy, or move it out of the tree, and run again."


@dataclass(frozen=True)
class RunOutcome:
    """The result of a run, its last status, and the seconds that the loop was busy itself."""

    result: RunResult
    status: RunStatus
    loop_busy_s: float


def run_plan(
    plan: Plan,
    root: Path,
    settings: RunSettings | None = None,
    show: Callable[[RunStatus], None] = lambda _status: None,
    stop: StopFlag | None = None,
    next_plan: Callable[[], Plan | None] | None = None,
) -> RunOutcome:
    """Run the studies of a plan into the records tree at ``root``, or continue them.

    Args:
        plan: the studies to run.
        root: the tree; made if need be.
        settings: where and how.
        show: called about once a second with the status of the run.
        stop: a flag that others set; without one, signals do.
        next_plan: called whenever all studies are done, returns a larger plan to continue with, or None at the end.

    Raises:
        RunError: the folder belongs to another experiment, or trials cannot be trained at all; or a recorded study is
            damaged, after all other studies were run.
        StudyLockedError: another run is writing there.
        StorageError: the folder cannot be written.
    """
    settings = settings or RunSettings()
    _check_settings(settings)
    trackers = [parse_tracker(text) for text in dict.fromkeys((*settings.track, *plan.experiment.run.track))]
    num_devices(plan, settings)
    check_folder(root, plan)
    _allow_many_files()
    if read_plan(root) is None:
        require_room(root, plan)
    stop_context = StopFlag() if stop is None else contextlib.nullcontext(stop)
    with _locked(root), stop_context as flag:
        context = _RunContext(root, settings, trackers, show, flag, time.monotonic(), is_last=next_plan is None)
        following: Plan | None = plan
        while following is not None:
            outcome = _run_studies(following, context)
            is_finished = outcome.result is RunResult.FINISHED
            following = next_plan() if next_plan is not None and is_finished else None
        if next_plan is not None and is_finished:
            outcome = replace(outcome, status=replace(outcome.status, finished=True))
            write_status(root, outcome.status)
            show(outcome.status)
    return outcome


@dataclass(frozen=True)
class _RunContext:
    """What all plans of a run share; ``is_last`` is True if the first plan is the only one."""

    root: Path
    settings: RunSettings
    trackers: list[TrackerName]
    show: Callable[[RunStatus], None]
    flag: StopFlag
    started: float
    is_last: bool


def _run_studies(plan: Plan, context: _RunContext) -> RunOutcome:
    """Run the studies of one plan in a locked folder."""
    root = context.root
    with _open_studies(root, plan, context.settings) as (runs, damaged):
        if not is_stored_plan(root, plan):
            mark_unfinished(root)
        write_plan(root, plan)
        outcome = _run_tracked(runs, plan, replace(context, show=_with_notice(context.show, damaged)))
        damaged += [run.problem for run in runs if run.problem is not None]
    if damaged and outcome.result is RunResult.FINISHED:
        raise RunError("\n".join(damaged) + "\nAll other studies are finished.")
    return outcome


def _check_settings(settings: RunSettings) -> None:
    if settings.runner not in RUNNERS:
        raise RunError(f"A runner is one of {', '.join(RUNNERS)}. Found '{settings.runner}'.")
    if settings.workers is not None and settings.workers < 1:
        raise RunError(f"A run has at least 1 worker. Found {settings.workers}.")
    if not 0 <= settings.keep_states_gb <= MOST_STATES_GB:
        raise RunError(
            f"--keep-states is a number of gigabytes from 0 to {MOST_STATES_GB:g}. Found {settings.keep_states_gb:g}."
        )


def _run_tracked(runs: list[StudyRun], plan: Plan, context: _RunContext) -> RunOutcome:
    """Run the loop with its trackers; the last status shows the notices of those that failed."""
    if not context.trackers:
        return _run_loop(runs, plan, context, None)
    with open_tracking(plan, context.root, context.trackers, lambda: context.flag.is_set) as tracking:
        outcome = _run_loop(runs, plan, context, tracking)
    if tracking.notices:
        context.show(replace(outcome.status, notice="\n".join(tracking.notices)))
    return outcome


def _run_loop(runs: list[StudyRun], plan: Plan, context: _RunContext, tracking: Tracking | None) -> RunOutcome:
    root, settings, flag = context.root, context.settings, context.flag
    latest: list[RunStatus] = []

    def report(loop: RunLoop) -> None:
        status = collect_status(loop, time.monotonic() - context.started)
        latest[:] = [replace(status, finished=status.finished and context.is_last)]
        write_status(root, latest[0])
        context.show(latest[0])

    _finish_trained(runs)
    with make_runner(runs, plan, root, settings, flag) as runner:
        flag.at_deadline = runner.kill
        # a script stores its measurements on disk by itself, and is costly to pause
        stretch_s = STRETCH_S if plan.experiment.trainer is None else math.inf
        loop_settings = LoopSettings(settings.retries, stretch_s=stretch_s, keep_going=settings.keep_going)
        loop = RunLoop(runs, runner, flag, DiskGuard(root), loop_settings, report, tracking)
        result = loop.run()
    return RunOutcome(result, latest[0], loop.busy_s)


def _finish_trained(runs: list[StudyRun]) -> None:
    """Record what needs no training, so that continuing a finished run starts no workers; reopen the rest."""
    for run in runs:
        try:
            while not run.done and not run.state.queue.ready():
                run.write_due(until=float("inf"))
            if not run.done:
                run.reopen()
        except (DamagedStudyError, RecordsError) as error:
            run.set_aside(str(error))
        except StorageError as error:
            if error.errno in OF_ONE_STUDY:
                run.set_aside(f"{error} {RESTORE_STUDY}")
            elif error.errno not in DISK_FULL:  # then the loop pauses and writes it later
                raise


def _with_notice(show: Callable[[RunStatus], None], notices: list[str]) -> Callable[[RunStatus], None]:
    def show_with_notice(status: RunStatus) -> None:
        show(replace(status, notice=status.notice or "\n".join(notices)) if notices else status)

    return show_with_notice


# --- the studies ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open_studies(root: Path, plan: Plan, settings: RunSettings) -> Iterator[tuple[list[StudyRun], list[str]]]:
    """Open the studies and close them at the end; yield them with the problems of damaged ones, which are left out."""
    with _opening(root, plan, settings) as futures:
        runs: list[StudyRun] = []
        damaged: list[str] = []
        for future in futures:
            try:
                runs.append(future.result())
            except DamagedStudyError as error:
                damaged.append(str(error))
            except StorageError as error:
                if error.errno not in OF_ONE_STUDY:
                    raise
                damaged.append(f"{error} {RESTORE_STUDY}")
        if not runs:
            raise RunError("\n".join(damaged))
        yield runs, damaged


@contextlib.contextmanager
def _opening(root: Path, plan: Plan, settings: RunSettings) -> Iterator[list[Future[StudyRun]]]:
    """Open the studies in threads.

    Opening a study reads all its trials. On a local disk that is work for the processor, of which Python uses one at a
    time: more than two threads only get in each other's way. On a network's file system it is waiting, which threads
    share. So the first study is opened alone and timed.
    """

    def open_study(study: Study) -> StudyRun:
        return open_study_run(root, study, plan.experiment, settings.retry_incomplete)

    with ThreadPoolExecutor(1, thread_name_prefix="opening") as pool:
        clock_s, processor_s = time.perf_counter(), time.process_time()
        first = pool.submit(open_study, plan.studies[0])
    threads = threads_for(time.perf_counter() - clock_s, time.process_time() - processor_s)
    with ThreadPoolExecutor(threads, thread_name_prefix="opening") as pool:
        futures = [first, *(pool.submit(open_study, study) for study in plan.studies[1:])]
        try:
            yield futures
        finally:
            for future in futures:
                if not future.cancel() and future.exception() is None:
                    future.result().close()


def threads_for(clock_s: float, processor_s: float) -> int:
    """Return how many studies to open at once, given the clock time and the processor time of one.

    >>> threads_for(1.0, 0.9), threads_for(1.0, 0.2), threads_for(1.0, 0.0)
    (2, 5, 16)
    """
    return round(min(MAX_THREADS, max(MIN_THREADS, clock_s / max(processor_s, 1e-6))))


# --- the process ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of the folder; `batchscale status` may hold it for a moment, hence the tries."""
    path = RunPaths(root).lock
    with storing("starting a run", root):
        make_folders(REAL, path.parent)
        handle = REAL.lock(path)
        for _ in range(LOCK_TRIES):
            if handle is not None:
                break
            time.sleep(0.05)
            handle = REAL.lock(path)
    if handle is None:
        owner = path.read_text(errors="replace").strip() or "unknown"
        raise StudyLockedError(
            f"{root}: only one run may write to a folder at a time. Found process {owner} writing; "
            "'batchscale status' shows its progress. Wait for it or stop it."
        )
    try:
        REAL.stamp(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        REAL.close(handle)


def _allow_many_files() -> None:
    """Raise the limit of open files: every running trial has a journal, and the usual 1,024 is too low for some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
