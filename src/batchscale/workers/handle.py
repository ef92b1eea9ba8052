"""The driver's handle of a worker process, whichever runner started it: its jobs, its state, and its replies.

How a message is sent, and what the end of a worker means, is up to each runner.
"""

import contextlib
import signal
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from batchscale.formatting import size
from batchscale.log_tail import last_lines
from batchscale.study.failure import Failure
from batchscale.workers.messages import Answered, Drain, Instruction, Raised, Ready, Reply, Saved, Started
from batchscale.workers.runner import Event, Job, JobFailed, LossReason, WorkerActivity, WorkerInfo

RESTART_AFTER_TRIALS = 2000
"""After so many trials a fresh process replaces a worker: what libraries leak does not grow without end."""

MAX_DEATHS_AT_START = 3
"""So many times the number of workers may die in a row before one of them is ready."""


@dataclass(eq=False)
class WorkerHandle(ABC):
    """One worker process.

    ``jobs`` are the unanswered ones, in the order of submission; ``started`` is the one that runs. The worker is
    ``ready`` once it can take jobs, and has ``saved`` its states after it was stopped. A worker that is ``draining``
    exits when its jobs are answered. ``trials`` counts those that it has trained.
    """

    info: WorkerInfo
    _: KW_ONLY
    jobs: deque[Job] = field(default_factory=deque)
    started: int | None = None
    ready: bool = False
    saved: bool = False
    draining: bool = False
    trials: int = 0

    @abstractmethod
    def send(self, message: Instruction) -> None:
        """Send a message after all earlier ones; if the worker is gone, nothing happens: its end is detected later."""

    @property
    def takes_jobs(self) -> bool:
        """True if a job may be submitted to it now."""
        return not self.draining

    @property
    def at_rest(self) -> bool:
        """True if it has answered its jobs and saved its states."""
        return self.saved and not self.jobs

    def submit(self, job: Job) -> None:
        """Queue a job."""
        self.jobs.append(job)
        self.send(job)

    def drain(self) -> None:
        """Make it exit when its jobs are answered."""
        if not self.draining:
            self.draining = True
            self.send(Drain())

    def handle_reply(self, reply: Reply) -> list[Event]:
        """Update the handle from a reply and return its events; a refusal is handled by the runner."""
        if isinstance(reply, WorkerActivity):
            return [reply]
        if isinstance(reply, Answered):
            self._finish(reply.result.job_id)
            self.trials += len(reply.result.progress)
            return [reply.result]
        if isinstance(reply, Raised):
            self._finish(reply.job_id)
            return [JobFailed(reply.job_id, self.info.worker_id, reply.loss, reply.reason)]
        if isinstance(reply, Ready):
            self.ready = True
        elif isinstance(reply, Started):
            self.started = reply.job_id
        elif isinstance(reply, Saved):
            self.saved = True
        return []

    def find_restart_reason(self, reply: Reply, max_bytes: float | None) -> str | None:
        """Return why a fresh process should replace it after this reply, for its trials or its memory; else None."""
        if self.draining or not isinstance(reply, Answered):
            return None
        if max_bytes is not None and reply.memory_bytes > max_bytes:
            return f"It used {size(reply.memory_bytes)} of memory; its share is {size(max_bytes)}."
        return f"It has trained {self.trials:,} trials." if self.trials >= RESTART_AFTER_TRIALS else None

    def fail_jobs(self, loss: LossReason, reason: Failure) -> list[Event]:
        """Return all its jobs as failed; those that it had not started as not started."""
        return [
            JobFailed(
                job.job_id,
                self.info.worker_id,
                loss if job.job_id == self.started else LossReason.NOT_STARTED,
                reason,
            )
            for job in self.jobs
        ]

    def _finish(self, job_id: int) -> None:
        self.jobs = deque(job for job in self.jobs if job.job_id != job_id)
        self.started = None


def is_out_of_memory(reply: Reply) -> bool:
    """Return True if a worker reports that a job ran out of memory."""
    return isinstance(reply, Raised) and reply.loss is LossReason.OUT_OF_MEMORY


def describe_exit(code: int, log: Path) -> Failure:
    """Describe the end of a worker process: its exit code or signal, and the last lines of its log."""
    lines = last_lines(log)
    if code < 0:
        with contextlib.suppress(ValueError):
            return Failure(f"A worker was killed by signal {signal.Signals(-code).name}.", lines)
    return Failure(f"A worker exited with code {code}.", lines)
