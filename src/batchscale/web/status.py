"""The status of a folder: the last snapshot of its run, its state, its curve so far, and the free disk space.

One small file is read per folder and cached until it changes, so a thousand folders cost a thousand ``stat`` calls.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batchscale.records.tree.layout import RunPaths
from batchscale.run.disk import WATERMARK_BYTES
from batchscale.run.status import RunState, RunStatus, find_state, is_running, read_status

RECORDS = "records"
STARTING = "starting"
STATES = (*(state.value for state in RunState), STARTING, RECORDS)
MAX_SIZE = 2**53
LOW_BYTES = 10 * WATERMARK_BYTES
STATUS, LOCK = (str(path) for path in (RunPaths(Path()).status, RunPaths(Path()).lock))  # below the root of a folder


@dataclass(frozen=True)
class FolderStatus:
    """The one state that every page shows; ``stamp`` changes when anything here does.

    ``state`` is one of STATES. RECORDS: no run ever wrote here. STARTING: a process was started and has not begun to
    run, so that the snapshot, if there is one, is of the run before.
    """

    state: str
    snapshot: RunStatus | None
    stamp: str

    @property
    def is_alive(self) -> bool:
        """True if a process holds the folder."""
        return self.state in (RunState.RUNNING, RunState.NOT_RESPONDING)

    @property
    def progress(self) -> float | None:
        """The share that is done, from 0 to 1; None if it is not known."""
        if self.snapshot is None or not self.snapshot.studies or self.state == STARTING:
            return None
        if self.snapshot.finished:
            return 1.0
        shares = [min(1.0, max(0.0, study.share)) for study in self.snapshot.studies]
        return float(sum(shares) / len(shares))

    @property
    def has_confirmations(self) -> bool:
        """True if the run is finished and trained its best trials again."""
        snapshot = self.snapshot
        return snapshot is not None and snapshot.finished and any(study.confirmations for study in snapshot.studies)

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """(batch size, fewest steps so far), where the goal was reached."""
        if self.snapshot is None:
            return ()
        pairs = ((study.batch_size, study.best_steps) for study in self.snapshot.studies)
        return tuple(sorted((b, s) for b, s in pairs if s is not None and 0 < s < MAX_SIZE and 0 < b < MAX_SIZE))

    @property
    def known(self) -> dict[str, object]:
        """The values whose changes a returning visitor is told: state, progress, trials, fewest steps by batch size."""
        studies = () if self.snapshot is None else self.snapshot.studies
        return {
            "state": self.state,
            "progress": self.progress,
            "trials": sum(study.complete + study.infeasible + study.incomplete for study in studies),
            "best": {str(size): steps for size, steps in self.points},
        }


class StatusReader:
    """Reads the status of folders, each status file once per change.

    ``is_starting`` is asked for a folder that no run holds: True if a process was started there after the status was
    written.
    """

    def __init__(self, is_starting: Callable[[Path, float], bool] = lambda _root, _written_at: False) -> None:
        self._is_starting = is_starting
        self._snapshots: dict[Path, tuple[int, RunStatus | None]] = {}

    def read(self, root: Path) -> FolderStatus:
        """Return the current status of the folder at ``root``."""
        changed = _changed_at(f"{root}/{STATUS}")
        cached = self._snapshots.get(root)
        if cached is None or cached[0] != changed:
            cached = (changed, read_status(root) if changed else None)
            self._snapshots[root] = cached
        snapshot = cached[1]
        running = _changed_at(f"{root}/{LOCK}") > 0 and is_running(root)
        if snapshot is None:
            state: str = RunState.RUNNING if running else RECORDS
        else:
            snapshot, state = find_state(snapshot, running=running)
        if not running and self._is_starting(root, snapshot.written_at if snapshot else 0.0):
            state = STARTING
        return FolderStatus(state, snapshot, f"{changed}-{state}")


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - text is faster, and there are a thousand
    except OSError:
        return 0


@dataclass(frozen=True)
class DiskSpace:
    """``free`` of ``total`` bytes; a run pauses when fewer than ``pauses_at`` are left."""

    free: int
    total: int
    pauses_at: int = WATERMARK_BYTES

    @property
    def is_low(self) -> bool:
        """True if somebody should free space."""
        return bool(self.free < LOW_BYTES)


def disk_space(path: Path) -> DiskSpace | None:
    """Return the disk space at a path; None if the file system does not report it."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return DiskSpace(usage.free, usage.total) if usage.total else None
