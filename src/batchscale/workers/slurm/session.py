"""A driver's session in the run's folder: where its workers register, their batch script, and its removal."""

import json
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from batchscale.spec.experiment import SlurmOptions
from batchscale.workers.slurm.client import ENDING, RUNNING, WAITING, JobQueue, SlurmError
from batchscale.workers.slurm.worker import HEARTBEAT_FILE, WORKERS

MakeJobQueue = Callable[[str, Path], JobQueue]
"""Makes the scheduler of a session from the name of its jobs and its folder."""

START = "import sys; sys.path[:] = {path}; from batchscale.workers.slurm.worker import main; main(sys.argv[1:])"
_POLL_S = (0.05, 1.0)
_PREFIX = "batchscale-"


def make_session(folder: Path) -> Path:
    """Make the folder of a new session, for the user alone."""
    session = folder / uuid.uuid4().hex[:12]
    (session / WORKERS).mkdir(parents=True)
    session.chmod(0o700)
    return session


def job_name(session: Path) -> str:
    """Return the name of all jobs of a session, and of no others."""
    return f"{_PREFIX}{session.name}"


def worker_script(arguments: Sequence[str]) -> str:
    """Return the script of a worker with these arguments: it becomes the worker, so that SLURM's signals reach it.

    A worker finds the same modules as the driver, however that was started.
    """
    path = json.dumps([path for path in sys.path if path])
    return f"#!/bin/sh\nexec {shlex.join([sys.executable, '-c', START.format(path=path), *arguments])}\n"


def sbatch_options(options: SlurmOptions, log_dir: Path) -> list[str]:
    """Return the options of every submission. The environment is exported: workers find the driver's modules."""
    resources = {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "time": options.time,
        "gpus-per-node": options.gpus,
        "cpus-per-task": options.cpus,
        "mem": options.memory,
    }
    pattern = str(log_dir).replace("%", "%%") + "/slurm-%A_%a.log"
    return [
        *(f"--{name}={value}" for name, value in resources.items() if value is not None),
        "--nodes=1",
        "--ntasks=1",
        "--requeue",
        f"--signal=B:USR1@{options.save_s}",
        "--export=ALL",
        "--chdir=/",
        "--open-mode=append",
        f"--output={pattern}",
        f"--error={pattern}",
        *options.options,
    ]


def log_of(log_dir: Path, job: str, place: int) -> Path:
    """Return the log of a task's process."""
    return log_dir / f"slurm-{job}_{place}.log"


def clear_sessions(folder: Path, make_scheduler: MakeJobQueue, leave_s: float) -> int:
    """End the jobs of drivers that died, wait for their end, and return the number of such drivers.

    Only for the process that holds the lock of the run. If SLURM does not answer, workers have left by themselves after
    ``leave_s``.
    """
    sessions = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    for session in sessions:
        (session / HEARTBEAT_FILE).unlink(missing_ok=True)  # its workers leave when they see that
        end_jobs(make_scheduler(job_name(session), session), leave_s)
        shutil.rmtree(session, ignore_errors=True)
    return len(sessions)


def end_jobs(scheduler: JobQueue, wait_s: float, ending_s: float | None = None) -> bool:
    """Cancel all jobs of a scheduler and wait for their end; False if they did not end in time."""
    started = time.monotonic()
    while True:
        try:
            scheduler.cancel()
            states = frozenset(task.state for task in scheduler.list_tasks())
        except SlurmError:
            states = RUNNING
        waited_s = time.monotonic() - started
        if not states & (RUNNING | WAITING | ENDING):
            return True
        if waited_s >= wait_s or (ending_s is not None and not states & (RUNNING | WAITING) and waited_s >= ending_s):
            return not states & (RUNNING | WAITING)
        time.sleep(min(max(_POLL_S[0], waited_s / 2), _POLL_S[1]))
