"""A SLURM that we own, for tests of the runner: tasks are processes of this machine, and never wait."""

import contextlib
import itertools
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from batchscale.workers.slurm.client import QueuedTask, SlurmError, TaskKey
from batchscale.workers.slurm.heartbeat import HeartbeatSettings
from batchscale.workers.slurm.runner import SlurmRunner, SlurmSettings
from batchscale.workers.slurm.session import log_of, worker_script
from batchscale.workers.slurm.worker import worker_arguments

QUICK = HeartbeatSettings(interval_s=0.2, leave_s=3.0, cancel_s=30.0)


@dataclass
class FakeTask:
    key: TaskKey
    node: str
    process: subprocess.Popen | None = None
    restarts: int = 0
    cancelled: bool = False

    @property
    def state(self) -> str:
        if self.process is None:
            return "PENDING"
        if self.process.poll() is None:
            return "RUNNING"
        return "CANCELLED" if self.cancelled else "FAILED" if self.process.returncode else "COMPLETED"


@dataclass
class FakeSlurm:
    """``held`` tasks wait; ``broken`` says why nothing is answered; ``asked`` is what was submitted."""

    log_dir: Path
    heartbeat: HeartbeatSettings = QUICK
    tasks: dict[TaskKey, FakeTask] = field(default_factory=dict)
    held: bool = False
    broken: str = ""
    asked: list[tuple[tuple[int, ...], frozenset[str]]] = field(default_factory=list)
    requeued: list[TaskKey] = field(default_factory=list)
    numbers: itertools.count = field(default_factory=lambda: itertools.count(1))

    def of_session(self, name: str, session: Path) -> "FakeSession":
        return FakeSession(self, name, session)

    def start(self, task: FakeTask, session: Path) -> None:
        script = worker_script(worker_arguments(session, 1, self.heartbeat))
        environment = {
            **os.environ,
            "SLURM_ARRAY_JOB_ID": task.key.job,
            "SLURM_ARRAY_TASK_ID": str(task.key.place),
            "SLURM_RESTART_COUNT": str(task.restarts),
            "SLURMD_NODENAME": task.node,
        }
        with log_of(self.log_dir, task.key.job, task.key.place).open("ab") as log:
            words = ["sh", "-c", script]
            task.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)

    def kill(self, number: int, place: int = 0) -> None:
        """Send a signal to the running process of a place."""
        task = next(task for task in self.tasks.values() if task.key.place == place and task.state == "RUNNING")
        task.process.send_signal(number)


@dataclass
class FakeSession:
    slurm: FakeSlurm
    name: str
    session: Path

    def _mine(self) -> list[FakeTask]:
        if self.slurm.broken:
            raise SlurmError(self.slurm.broken)
        return [task for task in self.slurm.tasks.values() if task.key.job.startswith(f"{self.name}.")]

    def submit(self, places, exclude) -> str:
        self._mine()
        job = f"{self.name}.{next(self.slurm.numbers)}"
        self.slurm.asked.append((tuple(places), frozenset(exclude)))
        for place in places:
            task = FakeTask(TaskKey(job, place), f"node{place}")
            self.slurm.tasks[task.key] = task
            if not self.slurm.held:
                self.slurm.start(task, self.session)
        return job

    def list_tasks(self) -> list[QueuedTask]:
        return [
            QueuedTask(task.key, task.state, "Resources" if task.process is None else "None",
                       _status(task.process), task.node, task.restarts)
            for task in self._mine()
        ]  # fmt: skip

    def cancel(self, key=None) -> None:
        for task in self._mine():
            if key in (None, task.key) and task.state in ("RUNNING", "PENDING"):
                task.cancelled = True
                if task.process is None:
                    del self.slurm.tasks[task.key]
                else:
                    task.process.send_signal(signal.SIGTERM)

    def requeue(self, key) -> None:
        self._mine()
        task = self.slurm.tasks[key]
        self.slurm.requeued.append(key)
        with contextlib.suppress(ProcessLookupError):
            task.process.terminate()
        task.process.wait(30)
        task.restarts += 1
        self.slurm.start(task, self.session)


def _status(process) -> int:
    """What the system tells a parent: the code in the second byte, a signal in the first."""
    code = 0 if process is None or process.poll() is None else process.returncode
    return -code if code < 0 else code << 8


@contextlib.contextmanager
def fake_slurm(folder: Path, **options):
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    slurm = FakeSlurm(folder / "logs", **options)
    try:
        yield slurm
    finally:
        for task in slurm.tasks.values():
            if task.process is not None:
                task.process.kill()
                task.process.wait(10)


def fake_slurm_runner(setup, folder: Path, slurm: FakeSlurm, workers: int = 1, **changes) -> SlurmRunner:
    settings = SlurmSettings(
        workers, folder / "exchange", folder / "logs", heartbeat=QUICK, view_every_s=0.1, **changes
    )
    return SlurmRunner(setup, settings, slurm.of_session)
