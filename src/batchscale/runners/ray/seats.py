"""The seats of a Ray runner: one for each worker that it has, or waits for, with the jobs that were given to it."""

import contextlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from batchscale.protocol import Failure
from batchscale.runners.codec import encode_instruction
from batchscale.runners.messages import Instruction
from batchscale.runners.runner import Event, Job, LossReason, Lost, WorkerInfo


class Stage(Enum):
    """How far a seat is: placed by Ray, its process started, beginning there, or at work."""

    PLACING = auto()
    STARTING = auto()
    BEGINNING = auto()
    READY = auto()


@dataclass
class Seat:
    """A worker: its actor, its node once it has one, and its jobs in the order in which they were given."""

    info: WorkerInfo
    actor: Any
    stage: Stage = Stage.PLACING
    node: str = ""
    place: int = 0
    pid: int = 0
    jobs: deque[Job] = field(default_factory=deque)
    started: int | None = None
    trials: int = 0
    retiring: bool = False
    kept: bool = False
    told: int = 0

    def tell(self, message: Instruction) -> None:
        """Send a message after all earlier ones; if the worker is gone, its end says so."""
        self.actor.tell.remote(self.told, encode_instruction(message))
        self.told += 1

    def answer(self, job_id: int) -> None:
        """A job is answered."""
        self.jobs = deque(job for job in self.jobs if job.job_id != job_id)
        self.started = None

    def lose(self, loss: LossReason, reason: Failure) -> list[Event]:
        """All its jobs as lost; those that it had not begun as not started."""
        return [
            Lost(
                job.job_id,
                self.info.worker_id,
                loss if job.job_id == self.started else LossReason.NOT_STARTED,
                reason,
            )
            for job in self.jobs
        ]


def free_place(seats: Iterable[Seat], node: str) -> int:
    """The first place of a node that no worker has."""
    taken = {seat.place for seat in seats if seat.node == node}
    return next(place for place in range(len(taken) + 1) if place not in taken)


def end_actors(ray: Any, seats: Iterable[Seat]) -> None:
    """Kill these actors; their worker processes end with them."""
    for seat in seats:
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError, ValueError):  # the cluster may be gone
            ray.kill(seat.actor)
