"""Jobs of instruments: chains of commands that outlive the server, one at a time for each instrument.

A job inherits a locked file from us: while the lock is held, it lives, whatever became of the server. It writes itself
down with its start time before it does anything; only that process, while the lock is held, is ever signalled.
"""

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RunError
from batchscale.log_tail import read_tail
from batchscale.run.snapshot import is_held
from batchscale.web.chain import ChainPlan, ChainStanding, ChainStep, read_standing, write_plan
from batchscale.web.claims import Claim, note, read_claimed
from batchscale.web.refusals import RefusedError

LOG_BYTES = 4000


@dataclass(frozen=True)
class StartedJob:
    """The latest job of an instrument, and who it is."""

    kind: str
    claim: Claim


class WebJobs:
    """The jobs of one server. Thread-safe."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "jobs"
        self._lock = threading.Lock()
        self._children: list[subprocess.Popen[bytes]] = []

    def find(self, folder: Path) -> StartedJob | None:
        """The latest job that was started here for a folder."""
        found = read_claimed(self._file(folder, "json"))
        with contextlib.suppress(TypeError):
            return StartedJob(**found[0], claim=found[1]) if found else None
        return None

    def is_alive(self, folder: Path) -> bool:
        """Whether a job of the folder goes on."""
        held: bool = is_held(self._file(folder, "lock"))
        return held

    def standing(self, folder: Path) -> ChainStanding | None:
        """How far the latest job is, or how it ended."""
        return read_standing(self._file(folder, "standing"))

    def last_words(self, folder: Path) -> str:
        """The end of what the latest job complained of."""
        return read_tail(self._file(folder, "log"), LOG_BYTES)

    @property
    def count(self) -> int:
        """How many jobs go on."""
        with self._lock:
            self._children = [child for child in self._children if child.poll() is None]
        return sum(is_held(file) for file in self._folder.glob("*.lock"))

    def start(self, folder: Path, kind: str, steps: Sequence[ChainStep]) -> None:
        """Start the steps in a process of its own.

        Raises:
            RefusedError: another job of the folder goes on.
            RunError: the process cannot be started.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._file(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._launch(folder, kind, steps, handle)
        except BlockingIOError:
            raise RefusedError(409, "One thing at a time: something goes on here. Wait for it or stop it.") from None
        except OSError as error:
            raise RunError(f"The work could not be started: {error}.") from None
        finally:
            os.close(handle)  # the process has its own copy, and with it the lock

    def stop(self, folder: Path) -> None:
        """Ask the job to stop, as Ctrl-C does.

        Raises:
            RefusedError: nothing goes on, or a process that is not proven ours.
        """
        number = self._prove(folder)
        if number is None:
            raise RefusedError(409, "There is nothing of ours to stop here.")
        try:
            handle = os.pidfd_open(number)
        except OSError:
            raise RefusedError(409, "It has just ended.") from None
        try:
            if self._prove(folder) is None:  # the handle is of whoever has the number now
                raise RefusedError(409, "It has just ended.")
            signal.pidfd_send_signal(handle, signal.SIGINT)
        finally:
            os.close(handle)

    def _launch(self, folder: Path, kind: str, steps: Sequence[ChainStep], handle: int) -> None:
        plan, log, standing, job = (self._file(folder, ending) for ending in ("plan", "log", "standing", "json"))
        log.write_bytes(b"")
        standing.unlink(missing_ok=True)
        write_plan(plan, ChainPlan(tuple(steps), str(folder), str(log), str(standing), str(job)))
        note(job, {"kind": kind})
        child = subprocess.Popen(
            [sys.executable, "-m", "batchscale.web.chain", str(plan)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=[handle],
        )  # fmt: skip
        with self._lock:
            self._children.append(child)

    def _prove(self, folder: Path) -> int | None:
        """The number of the job's process, while it lives and the lock is held."""
        started = self.find(folder)
        if started is None or not self.is_alive(folder) or not started.claim.is_alive:
            return None
        return started.claim.pid

    def _file(self, folder: Path, ending: str) -> Path:
        digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        return self._folder / f"{digest}.{ending}"
