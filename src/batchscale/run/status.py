"""The status of a run, as a value: displayed live, and stored beside the tree for `batchscale status`.

Nothing here is needed to resume. The file never stores that a run is alive: a run is alive while its lock is held.
"""

import dataclasses
import fcntl
import functools
import json
import os
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from batchscale.records.durable import replace_atomically
from batchscale.records.tree.layout import RunPaths
from batchscale.spec.untrusted_text import parse_json

NOT_RESPONDING_AFTER_S = 30.0


class RunState(StrEnum):
    """The state of a run that has written a status.

    A run that is not responding holds its lock and has not written its status lately.
    """

    RUNNING = "running"
    NOT_RESPONDING = "silent"
    STOPPED = "stopped"
    FINISHED = "finished"


@dataclass(frozen=True)
class RangeChange:
    """The range of a metaparameter in one search, and in the next."""

    parameter: str
    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True)
class NewSearch:
    """A search of a study after its first: the reason, and the ranges that changed."""

    search: int
    reason: str
    changes: tuple[RangeChange, ...] = ()


@dataclass(frozen=True)
class StudyStatus:
    """One study.

    ``best_steps`` is the fewest steps to the goal so far, ``front`` the last measured step of any trial, ``note`` a
    reason to trust the result less once it is done. ``infeasible`` counts recorded trials; ``diverged`` adds those that
    diverged and are recorded at the end of their search. ``wanted`` is the number of trials of one search,
    ``confirmations`` that of the best trials trained again with new seeds.
    """

    batch_size: int
    search: int
    done: bool
    wanted: int
    complete: int
    infeasible: int
    incomplete: int
    running: int
    reached: int
    best_steps: int | None
    front: int
    train_steps: int
    share: float
    trial_steps: int
    seconds: float
    note: str | None = None
    diverged: int = 0
    new_searches: tuple[NewSearch, ...] = ()
    confirmations: int = 0
    tokens_per_example: int | None = None

    @property
    def all_wanted(self) -> int:
        """The trials of all searches and confirmations so far."""
        return self.wanted * self.search + self.confirmations


@dataclass(frozen=True)
class WorkerStatus:
    """One worker: ``activity`` is starting, waiting, loading, compiling, training or evaluating.

    ``step`` is that of the foremost of its trials, ``train_steps`` their step budget, ``seconds`` the time since the
    activity began.
    """

    worker: str
    activity: str
    batch_size: int | None = None
    trials: tuple[int, ...] = ()
    step: int = 0
    train_steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class RunStatus:
    """A whole run.

    ``time_left_s`` is an estimate for the searches that have begun, None while its bounds are far apart; it holds under
    the conditions ``time_left_assumes``. ``doing`` lists the workers, ``choices`` the rounds of an adaptive experiment
    with their reasons.
    """

    workload: str
    goal: str
    source: str
    written_at: float
    elapsed_s: float
    workers: int
    steps_per_s: float
    time_left_s: float | None
    finished: bool
    paused: str | None = None
    failures: dict[str, int] = field(default_factory=dict)
    given_up: int = 0
    notice: str | None = None
    studies: tuple[StudyStatus, ...] = ()
    time_left_assumes: tuple[str, ...] = ()
    doing: tuple[WorkerStatus, ...] = ()
    choices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the object that the status file stores."""
        studies = [{**vars(s), "new_searches": [dataclasses.asdict(n) for n in s.new_searches]} for s in self.studies]
        return {**vars(self), "studies": studies, "doing": [dict(vars(worker)) for worker in self.doing]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "RunStatus":
        """Parse the object of a status file.

        Raises:
            ValueError: it is not a status.
        """
        status: RunStatus = _parser().validate_python(data)
        return status


@functools.cache
def _parser() -> Any:
    from pydantic import TypeAdapter  # here: most runs parse none; cached: making it takes longer than parsing

    return TypeAdapter(RunStatus)


# --- the status file --------------------------------------------------------------------------------------------


def write_status(root: Path, status: RunStatus) -> None:
    """Store the status for other processes; not durable, and a disk that refuses is no reason to stop."""
    path = RunPaths(root).status
    try:
        replace_atomically(path, json.dumps(status.to_json()))
    except OSError:
        return


def read_status(root: Path) -> RunStatus | None:
    """Return the latest status of the folder; None if there is none, or it cannot be read."""
    try:
        return RunStatus.from_json(parse_json(RunPaths(root).status.read_bytes(), _refuse))
    except (OSError, ValueError):
        return None


def _refuse(constant: str) -> float:
    raise ValueError(f"A status holds finite numbers. Found {constant}.")


def mark_unfinished(root: Path) -> None:
    """Mark the folder as not finished, because a larger plan is run there now."""
    status = read_status(root)
    if status is not None and status.finished:
        write_status(root, dataclasses.replace(status, finished=False))


# --- the state --------------------------------------------------------------------------------------------------


def find_state(status: RunStatus, *, running: bool) -> tuple[RunStatus, RunState]:
    """Return the stored status as it holds now, and the state; ``running`` is True if the run's lock is held."""
    if status.finished:
        return status, RunState.FINISHED
    if not running:  # then nothing is in training, whatever was stored last
        studies = tuple(dataclasses.replace(study, running=0) for study in status.studies)
        return dataclasses.replace(status, studies=studies, time_left_s=None, doing=()), RunState.STOPPED
    # after a clock was set back a hanging run must not look alive for hours: the distance counts, not the sign
    if abs(time.time() - status.written_at) > NOT_RESPONDING_AFTER_S:
        return status, RunState.NOT_RESPONDING
    return status, RunState.RUNNING


def is_running(root: Path) -> bool:
    """True if a live process holds the folder's lock."""
    return is_locked(RunPaths(root).lock)


def is_locked(lock: Path) -> bool:
    """True if a live process holds this file's lock; False if there is no such file."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
