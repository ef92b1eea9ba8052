"""A trial's folder: the results of earlier attempts, the files of the newest one, and the script's checkpoint folder.

    TRIAL_ID/known.json     the reports of earlier attempts, with the identity of the trial
    TRIAL_ID/state/         the script's saves
    TRIAL_ID/3/             the newest attempt: trial.json, control.json, reports.jsonl, log.txt
    TRIAL_ID/lock           held by the supervisor of the running attempt

Nothing here is needed to resume: a folder that is lost, damaged or another trial's is emptied, and the trial is trained
from its seed.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchscale.errors import RunError, TrialFailedError
from batchscale.records.durable import replace_atomically
from batchscale.trainers.supervisor import request_file

HISTORY_FILE = "known.json"
STATE_FOLDER = "state"
LOCK_FILE = "lock"

LOCK_EVERY_S = 0.02

MAX_RESUMED_FAILURES = 2
"""After this many attempts in a row that failed at once, the next begins at step 0: the save may be damaged."""


@dataclass
class TrialHistory:
    """The results of a trial's attempts before the newest.

    ``columns`` are the metrics of its first measurement, which all later ones have. ``folded`` is the number of the
    newest attempt whose reports are included. ``failures`` counts the attempts in a row that failed before they
    reported anything new.
    """

    identity: str
    attempts: int = 0
    folded: int = 0
    rows: dict[int, dict[str, float]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    diverged_at: int | None = None
    failures: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``known.json``; values that are not finite are null."""
        rows = [[s, {n: v if math.isfinite(v) else None for n, v in r.items()}] for s, r in sorted(self.rows.items())]
        return {**vars(self), "rows": rows, "columns": list(self.columns)}

    @classmethod
    def from_json(cls, data: Any) -> "TrialHistory":
        """Return the history of a file; any kind of error if the content is invalid."""
        rows = {int(s): {str(n): math.nan if v is None else float(v) for n, v in r.items()} for s, r in data["rows"]}
        diverged_at = data["diverged_at"]
        return cls(
            identity=str(data["identity"]),
            attempts=int(data["attempts"]),
            folded=int(data["folded"]),
            rows=rows,
            columns=tuple(str(name) for name in data["columns"]),
            diverged_at=None if diverged_at is None else int(diverged_at),
            failures=int(data["failures"]),
        )


class TrialFolder:
    """The folder of one trial."""

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self.history = self._read(identity)

    @property
    def state(self) -> Path:
        """The script's checkpoint folder."""
        return self.path / STATE_FOLDER

    @property
    def attempt(self) -> Path:
        """The folder of the newest attempt."""
        return self.path / str(self.history.attempts)

    @property
    def lock(self) -> Path:
        """The file that the supervisor of a running script has locked."""
        return self.path / LOCK_FILE

    def acquire(self, seconds: float, should_stop: Callable[[], bool]) -> int | None:
        """Return a handle that holds the trial's lock; None if ``should_stop`` returns True first.

        A paused script of another worker, on this host or on another one that shares the folder, is asked to save and
        exit. Only when its supervisor has gone are its last save and its last reports on disk.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        until = time.monotonic() + seconds
        while not _try_lock(handle, self.lock):
            if should_stop() or time.monotonic() > until:
                os.close(handle)
                if should_stop():
                    return None
                raise TrialFailedError(f"{self.lock}: another process is training this trial.")
            request_file(self.lock).touch()
            time.sleep(LOCK_EVERY_S)
        request_file(self.lock).unlink(missing_ok=True)
        return handle

    def has_state(self) -> bool:
        """Return True if the script has saved anything."""
        with contextlib.suppress(OSError):
            return any(self.state.iterdir())
        return False

    def open_attempt(self) -> Path:
        """Return the folder of a new attempt; the history is written, and older attempts are removed.

        The lock must be held. What another trial left in the folder is removed.
        """
        if not self.history.attempts and self.path.is_dir():
            self._empty()
        if self.history.failures >= MAX_RESUMED_FAILURES:
            shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True, exist_ok=True)
        before = self.attempt if self.history.attempts else None
        self.history.attempts += 1
        shutil.rmtree(self.attempt, ignore_errors=True)
        self.attempt.mkdir(parents=True)
        self.write()
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)
        return self.attempt

    def write(self) -> None:
        """Write the history to disk."""
        write_json(self.path / HISTORY_FILE, self.history.to_json())

    def num_bytes(self) -> int:
        """Return the bytes of the script's saves."""
        total = 0
        for folder, _, names in os.walk(self.state):
            for name in names:
                with contextlib.suppress(OSError):
                    total += (Path(folder) / name).stat().st_size
        return total

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self, identity: str) -> TrialHistory:
        try:
            history = TrialHistory.from_json(json.loads((self.path / HISTORY_FILE).read_bytes()))
        except Exception:  # noqa: BLE001 - a damaged file can raise any error; the trial then starts again
            history = None
        if history is None or identity not in (history.identity, hash_identity(history.identity)):
            return TrialHistory(identity)
        history.identity = identity  # version 0.1 stored the text itself
        return history

    def _empty(self) -> None:
        """Remove everything but the lock."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path != self.lock:
                path.unlink(missing_ok=True)


def hash_identity(text: str) -> str:
    """Return the identity of a trial as it is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


def _try_lock(handle: int, path: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        os.close(handle)
        raise RunError(
            f"The folder of trials must be on a file system with file locks (flock). Locking '{path}' failed: "
            f"{error.strerror}. Pass another --out."
        ) from None
    return True


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a file as a whole, so that no reader ever sees half of it."""
    replace_atomically(path, json.dumps(data, indent=1, allow_nan=False) + "\n")
