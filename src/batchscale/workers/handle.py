"""A worker as its driver knows it, whichever runner started it: its jobs, how far it is, and what it said.

How a worker is told something, and what its end means, is each runner's own.
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import KW_ONLY, dataclass, field

from batchscale.study.failure import Failure
from batchscale.workers.messages import Answered, Drain, Instruction, Kept, Raised, Ready, Reply, Started
from batchscale.workers.runner import Event, Job, JobFailed, LossReason, WorkerActivity, WorkerInfo

RECYCLE_AFTER_TRIALS = 2000
"""After so many trials a fresh process takes a worker's place: what libraries leak does not grow without end."""

MAX_DEATHS_AT_START = 3
"""So many times the number of workers may die in a row before one of them has begun."""


@dataclass(eq=False)
class WorkerHandle(ABC):
    """One worker process, or what stands for one.

    ``jobs`` are those that it has not answered, in the order in which they were given; ``started`` is the one that it
    has taken up. It is ``ready`` once it has begun, and has ``kept`` what it holds when it was told to stop. A worker
    that is ``draining`` leaves when its jobs are answered. ``trials`` is how many it has trained.
    """

    info: WorkerInfo
    _: KW_ONLY
    jobs: deque[Job] = field(default_factory=deque)
    started: int | None = None
    ready: bool = False
    kept: bool = False
    draining: bool = False
    trials: int = 0

    @abstractmethod
    def tell(self, message: Instruction) -> None:
        """Send it a message after all earlier ones; if it is gone, its end says so and this does not."""

    @property
    def takes_jobs(self) -> bool:
        """Whether it may be given a job now."""
        return not self.draining

    @property
    def at_rest(self) -> bool:
        """Whether it has answered its jobs and kept its states."""
        return self.kept and not self.jobs

    def give(self, job: Job) -> None:
        """Give it a job."""
        self.jobs.append(job)
        self.tell(job)

    def drain(self) -> None:
        """Let it leave when its jobs are answered."""
        if not self.draining:
            self.draining = True
            self.tell(Drain())

    def hear(self, reply: Reply) -> list[Event]:
        """Take in what it said: the events of it. What follows for other workers, as of a refusal, is the runner's."""
        if isinstance(reply, WorkerActivity):
            return [reply]
        if isinstance(reply, Answered):
            self.answer(reply.done.job_id)
            self.trials += len(reply.done.progress)
            return [reply.done]
        if isinstance(reply, Raised):
            self.answer(reply.job_id)
            return [JobFailed(reply.job_id, self.info.worker_id, reply.loss, reply.reason)]
        if isinstance(reply, Ready):
            self.ready = True
        elif isinstance(reply, Started):
            self.started = reply.job_id
        elif isinstance(reply, Kept):
            self.kept = True
        return []

    def needs_restart(self, reply: Reply, max_bytes: float | None) -> bool:
        """Whether a fresh process should take its place after this answer, for its trials or the memory it holds."""
        if not isinstance(reply, Answered):
            return False
        return self.trials >= RECYCLE_AFTER_TRIALS or (max_bytes is not None and reply.memory_bytes > max_bytes)

    def answer(self, job_id: int) -> None:
        """A job is answered."""
        self.jobs = deque(job for job in self.jobs if job.job_id != job_id)
        self.started = None

    def lose(self, loss: LossReason, reason: Failure) -> list[Event]:
        """All its jobs as lost; those that it had not taken up as not started."""
        return [
            JobFailed(
                job.job_id,
                self.info.worker_id,
                loss if job.job_id == self.started else LossReason.NOT_STARTED,
                reason,
            )
            for job in self.jobs
        ]


def is_out_of_memory(reply: Reply) -> bool:
    """Whether a worker said that a job was too much for the memory there is."""
    return isinstance(reply, Raised) and reply.loss is LossReason.OUT_OF_MEMORY
