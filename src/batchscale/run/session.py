"""A run from its first check to its last record: the folder's lock, the studies, the runner, the driver.

Everything that can be found wrong is found before the first trial starts and before anything is written.
"""

import contextlib
import math
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from batchscale.errors import RecordsError, RunError, StorageError, StudyLockedError
from batchscale.machine import DISK_FULL
from batchscale.records.durable import make_folders, storing
from batchscale.records.filesystem import REAL
from batchscale.records.tree.layout import RunPaths
from batchscale.run.disk import OF_ONE_STUDY, DiskGuard, require_room
from batchscale.run.dispatch import STRETCH_S
from batchscale.run.driver import Driver, DriverSettings, Result
from batchscale.run.opened_studies import LOOK_AT_STUDY, opened_studies
from batchscale.run.place_runner import make_runner, num_devices
from batchscale.run.run_settings import RUNNERS, RunSettings
from batchscale.run.signals import StopFlag
from batchscale.run.snapshot import Snapshot, mark_unfinished, write_snapshot
from batchscale.run.take_snapshot import take_snapshot
from batchscale.spec.plan import Plan
from batchscale.study.identity import check_folder, is_asked_for, read_asked, write_asked
from batchscale.study.study_facts import DamagedStudyError
from batchscale.study.study_run import StudyRun

LOCK_TRIES = 6
WANTED_FILES = 16384


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, where it stood then, and what share of the time the driver was busy itself."""

    result: Result
    snapshot: Snapshot
    driver_busy_s: float


def run_plan(
    plan: Plan,
    root: Path,
    settings: RunSettings | None = None,
    show: Callable[[Snapshot], None] = lambda _snapshot: None,
    stop: StopFlag | None = None,
) -> RunOutcome:
    """Run the studies of a plan into the records tree at ``root``, or continue them.

    Args:
        plan: what to run.
        root: the tree; made if need be.
        settings: where and how.
        show: called about once a second with how the run stands.
        stop: a flag that others set; without one, signals do.

    Raises:
        RunError: the folder belongs to another experiment, or trials cannot be trained at all; or a recorded study is
            damaged, after everything that has nothing to do with it was run.
        StudyLockedError: another run is writing there.
        StorageError: the folder cannot be written.
    """
    settings = settings or RunSettings()
    if settings.runner not in RUNNERS:
        raise RunError(f"A runner is one of {', '.join(RUNNERS)}. Found '{settings.runner}'.")
    if settings.workers is not None and settings.workers < 1:
        raise RunError(f"A run has at least 1 worker. Found {settings.workers}.")
    if not 0 <= settings.keep_states_gb < math.inf:
        raise RunError(f"--keep-states is a number of gigabytes from 0. Found {settings.keep_states_gb:g}.")
    num_devices(plan, settings)
    check_folder(root, plan)
    _allow_many_files()
    if read_asked(root) is None:
        require_room(root, plan)
    held = StopFlag() if stop is None else contextlib.nullcontext(stop)
    with _locked(root), held as flag, opened_studies(root, plan, settings) as (runs, damaged):
        if not is_asked_for(root, plan):
            mark_unfinished(root)
        write_asked(root, plan)
        outcome = _drive(runs, plan, root, settings, _with_notice(show, damaged), flag)
        damaged += [run.problem for run in runs if run.problem is not None]
    if damaged and outcome.result is Result.FINISHED:
        raise RunError("\n".join(damaged) + "\nAll other studies are finished.")
    return outcome


def _drive(
    runs: list[StudyRun],
    plan: Plan,
    root: Path,
    settings: RunSettings,
    show: Callable[[Snapshot], None],
    flag: StopFlag,
) -> RunOutcome:
    started = time.monotonic()
    latest: list[Snapshot] = []

    def report(driver: Driver) -> None:
        latest[:] = [take_snapshot(driver, time.monotonic() - started)]
        write_snapshot(root, latest[0])
        show(latest[0])

    _settle(runs)
    with make_runner(runs, plan, root, settings, flag) as runner:
        flag.at_deadline = runner.kill
        # a script keeps its measurements on disk by itself, and is costly to pause
        stretch_s = STRETCH_S if plan.experiment.trainer is None else math.inf
        driver_settings = DriverSettings(settings.retries, stretch_s=stretch_s)
        driver = Driver(runs, runner, flag, DiskGuard(root), driver_settings, report)
        result = driver.run()
    return RunOutcome(result, latest[0], driver.busy_s)


def _settle(runs: list[StudyRun]) -> None:
    """Finish what needs no training, so that continuing a finished run starts no workers; reopen the rest."""
    for run in runs:
        try:
            while not run.done and not run.state.waiting.offer():
                run.write_due(until=float("inf"))
            if not run.done:
                run.reopen()
        except (DamagedStudyError, RecordsError) as error:
            run.set_aside(str(error))
        except StorageError as error:
            if error.errno in OF_ONE_STUDY:
                run.set_aside(f"{error} {LOOK_AT_STUDY}")
            elif error.errno not in DISK_FULL:  # then the driver pauses and writes it later
                raise


def _with_notice(show: Callable[[Snapshot], None], notices: list[str]) -> Callable[[Snapshot], None]:
    def shown(snapshot: Snapshot) -> None:
        show(replace(snapshot, notice=snapshot.notice or "\n".join(notices)) if notices else snapshot)

    return shown


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of the folder; `batchscale status` may look at it for a moment, hence the tries."""
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
            f"{root}: one run writes a folder at a time. Found process {owner} at it; "
            "'batchscale status' shows how it stands. Wait for it or stop it."
        )
    try:
        REAL.stamp(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        REAL.close(handle)


def _allow_many_files() -> None:
    """Every running trial has an open journal; the usual limit of 1,024 files is too low for some experiments."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
