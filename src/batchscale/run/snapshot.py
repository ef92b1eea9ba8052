"""How a run stands, as a value: shown live, stored beside the tree for `batchscale status`.

Nothing here is needed to resume. Whether a run is alive is never stored: it is whether its lock is held.
"""

import dataclasses
import fcntl
import functools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchscale.records.durable import replace_atomically
from batchscale.records.tree.layout import RunPaths


@dataclass(frozen=True)
class RangeChange:
    """The range of a metaparameter in one search, and in the next."""

    parameter: str
    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True)
class NewSearch:
    """A search of a study after its first: why it was begun, and which ranges are others than before."""

    search: int
    reason: str
    changes: tuple[RangeChange, ...] = ()


@dataclass(frozen=True)
class StudySnapshot:
    """One study.

    ``best_steps`` is the fewest steps to the goal so far, ``front`` how far its trials are known, ``note`` what lowers
    the trust in it once it is done. ``infeasible`` counts recorded trials, ``diverged`` those too that diverged and
    wait for the end of their search to be recorded.
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


@dataclass(frozen=True)
class WorkerSnapshot:
    """What a worker does: ``activity`` is starting, waiting, loading, compiling, training or evaluating.

    ``step`` is that of the foremost of its trials, ``train_steps`` their step budget, ``seconds`` how long the activity
    has gone on.
    """

    worker: str
    activity: str
    batch_size: int | None = None
    trials: tuple[int, ...] = ()
    step: int = 0
    train_steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """A whole run.

    ``time_left_s`` is an estimate for the searches that have begun, None while no step was timed; it holds under the
    conditions ``time_left_assumes``.
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
    studies: tuple[StudySnapshot, ...] = ()
    time_left_assumes: tuple[str, ...] = ()
    doing: tuple[WorkerSnapshot, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object stored in the status file."""
        studies = [{**vars(s), "new_searches": [dataclasses.asdict(n) for n in s.new_searches]} for s in self.studies]
        return {**vars(self), "studies": studies, "doing": [dict(vars(worker)) for worker in self.doing]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Snapshot":
        """The snapshot that a status file holds.

        Raises:
            ValueError: it holds something else.
        """
        found: Snapshot = _reader().validate_python(data)
        return found


@functools.cache
def _reader() -> Any:
    from pydantic import TypeAdapter  # here: most runs read none; once: making it takes longer than reading with it

    return TypeAdapter(Snapshot)


def write_snapshot(root: Path, snapshot: Snapshot) -> None:
    """Store the snapshot for other processes; not durable, and a disk that refuses is no reason to stop."""
    path = RunPaths(root).status
    try:
        replace_atomically(path, json.dumps(snapshot.to_json()))
    except OSError:
        return


def mark_unfinished(root: Path) -> None:
    """More is asked of the folder than before: it is not finished any more, whatever happens next."""
    snapshot = read_snapshot(root)
    if snapshot is not None and snapshot.finished:
        write_snapshot(root, dataclasses.replace(snapshot, finished=False))


def read_snapshot(root: Path) -> Snapshot | None:
    """The latest snapshot of the folder, or None if there is none."""
    try:
        return Snapshot.from_json(json.loads(RunPaths(root).status.read_bytes(), parse_constant=_refuse))
    except (OSError, ValueError):
        return None


def _refuse(constant: str) -> float:
    raise ValueError(f"A status holds finite numbers. Found {constant}.")


def is_running(root: Path) -> bool:
    """Whether a live process holds the folder's lock."""
    return is_held(RunPaths(root).lock)


def is_held(lock: Path) -> bool:
    """Whether a live process holds this file's lock; where there is no such file, nobody does."""
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
