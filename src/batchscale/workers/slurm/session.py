"""A driver's session in the run's folder: where its workers meet it, and what is left of drivers that died."""

import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from batchscale.workers.slurm.commands import ENDING, RUNNING, WAITING, Scheduler, SlurmError
from batchscale.workers.slurm.worker import PULSE, WORKERS

MakeScheduler = Callable[[str, Path], Scheduler]
"""Makes the way to SLURM for a session, from the name of its jobs and its folder."""

_LOOK_S = (0.05, 1.0)
_PREFIX = "batchscale-"


def make_session(folder: Path) -> Path:
    """A new session's folder, for the user alone."""
    session = folder / uuid.uuid4().hex[:12]
    (session / WORKERS).mkdir(parents=True)
    session.chmod(0o700)
    return session


def job_name(session: Path) -> str:
    """The name of all jobs of a session, and of no others."""
    return f"{_PREFIX}{session.name}"


def clear_sessions(folder: Path, make_scheduler: MakeScheduler, leave_s: float) -> int:
    """End what drivers that died have left, and wait until it has ended; how many there were.

    Only for whoever holds the lock of the run. Where SLURM does not answer, workers have left by themselves after
    ``leave_s``.
    """
    old = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    for session in old:
        (session / PULSE).unlink(missing_ok=True)  # its workers leave when they see that
        end_jobs(make_scheduler(job_name(session), session), leave_s)
        shutil.rmtree(session, ignore_errors=True)
    return len(old)


def end_jobs(scheduler: Scheduler, wait_s: float, ending_s: float | None = None) -> bool:
    """Cancel all jobs of a scheduler and wait for their end; False if they could not be seen to end in time."""
    started = time.monotonic()
    while True:
        try:
            scheduler.cancel()
            states = frozenset(task.state for task in scheduler.look())
        except SlurmError:
            states = RUNNING
        waited_s = time.monotonic() - started
        if not states & (RUNNING | WAITING | ENDING):
            return True
        if waited_s >= wait_s or (ending_s is not None and not states & (RUNNING | WAITING) and waited_s >= ending_s):
            return not states & (RUNNING | WAITING)
        time.sleep(min(max(_LOOK_S[0], waited_s / 2), _LOOK_S[1]))
