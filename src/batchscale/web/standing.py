"""How a folder stands: what its run last wrote, whether it is alive, and the curve so far.

One small file is read per folder and kept until it changes, so that a thousand folders cost a thousand ``stat`` calls.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from batchscale.records.tree.layout import RunPaths
from batchscale.run.status import RunState, RunStatus, find_state, is_running, read_status

RECORDS = "records"
STATES = (*(state.value for state in RunState), RECORDS)
MOST_SIZE = 2**53
STATUS, LOCK = (str(path) for path in (RunPaths(Path()).status, RunPaths(Path()).lock))  # below the root of a folder


@dataclass(frozen=True)
class Standing:
    """``state`` is one of STATES (RECORDS: no run ever wrote here); ``stamp`` changes when anything here does."""

    state: str
    snapshot: RunStatus | None
    stamp: str

    @property
    def is_alive(self) -> bool:
        """Whether a process holds the folder."""
        return self.state in (RunState.RUNNING, RunState.NOT_RESPONDING)

    @property
    def progress(self) -> float | None:
        """The share that is done, from 0 to 1; None where nothing says so."""
        if self.snapshot is None or not self.snapshot.studies:
            return None
        if self.snapshot.finished:
            return 1.0
        shares = [min(1.0, max(0.0, study.share)) for study in self.snapshot.studies]
        return float(sum(shares) / len(shares))

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """(batch size, fewest steps so far), where the goal was reached."""
        if self.snapshot is None:
            return ()
        pairs = ((study.batch_size, study.best_steps) for study in self.snapshot.studies)
        return tuple(sorted((b, s) for b, s in pairs if s is not None and 0 < s < MOST_SIZE and 0 < b < MOST_SIZE))


class Standings:
    """Reads how folders stand, each status file once per change."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[int, RunStatus | None]] = {}

    def look(self, root: Path) -> Standing:
        """How the folder at ``root`` stands now."""
        changed = _changed_at(f"{root}/{STATUS}")
        kept = self._kept.get(root)
        if kept is None or kept[0] != changed:
            kept = (changed, read_status(root) if changed else None)
            self._kept[root] = kept
        snapshot = kept[1]
        running = _changed_at(f"{root}/{LOCK}") > 0 and is_running(root)
        if snapshot is None:
            state: str = RunState.RUNNING if running else RECORDS
        else:
            snapshot, state = find_state(snapshot, running=running)
        return Standing(state, snapshot, f"{changed}-{state}")


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - text, and a thousand of them
    except OSError:
        return 0
