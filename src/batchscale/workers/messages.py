"""What driver and worker processes say to each other over their pipe, besides jobs and their answers."""

from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.study.failure import Failure
from batchscale.workers.remote_setup import RemoteSetup
from batchscale.workers.runner import Job, JobResult, LossReason, Setup, WorkerActivity


@dataclass(frozen=True)
class Begin:
    """The driver's first message. ``luggage`` is for a worker on another machine: what it needs and must check."""

    setup: Setup
    worker_id: str
    luggage: RemoteSetup | None = None


@dataclass(frozen=True)
class Forget:
    """Drop these trials of a study; without any, the whole study."""

    batch_size: int
    trial_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shelve:
    """Drop these trials of a study from memory: they ended at these steps, and might be trained longer one day."""

    batch_size: int
    steps: Mapping[int, int]


@dataclass(frozen=True)
class Stop:
    """End the running job at its next chunk, answer it, and checkpoint what is costly to train again."""


@dataclass(frozen=True)
class Drain:
    """As `Stop`, when all earlier jobs are answered; then exit."""


@dataclass(frozen=True)
class Leave:
    """The machine is about to be taken away: end the running job, drop those that wait, keep states, and exit.

    No driver says this: a worker tells it itself when its scheduler does.
    """


@dataclass(frozen=True)
class Ready:
    """The worker has begun. ``host`` is the machine that it runs on, where the driver does not know.

    ``blind`` says why it cannot keep states at the remote path, if it cannot.
    """

    host: str = ""
    blind: str = ""


@dataclass(frozen=True)
class Refused:
    """The worker cannot begin: its machine is not what the run needs, with a message for the user."""

    host: str
    reason: str


@dataclass(frozen=True)
class Started:
    """The worker has taken up a job: from now on its death is this job's failure."""

    job_id: int


@dataclass(frozen=True)
class Answered:
    """A finished job, and the memory that the worker's process holds."""

    done: JobResult
    memory_bytes: int


@dataclass(frozen=True)
class Raised:
    """A job that raised."""

    job_id: int
    loss: LossReason
    reason: Failure


@dataclass(frozen=True)
class Kept:
    """The answer to `Stop`: nothing that is worth a checkpoint is without one."""


Instruction = Begin | Job | Forget | Shelve | Stop | Drain | Leave
Reply = Ready | Refused | Started | WorkerActivity | Answered | Raised | Kept
