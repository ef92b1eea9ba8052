"""The seats of a Ray runner: one for each worker that it has, or waits for."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, final

from batchscale.workers.codec import encode_instruction
from batchscale.workers.handle import WorkerHandle
from batchscale.workers.messages import Instruction


class Stage(Enum):
    """How far a seat is: waiting for a place, its process starting there, or listened to."""

    PLACING = auto()
    STARTING = auto()
    HEARD = auto()


@final
@dataclass(eq=False)
class Seat(WorkerHandle):
    """A worker: its actor, and its node once it has one."""

    actor: Any
    stage: Stage = Stage.PLACING
    node: str = ""
    place: int = 0
    pid: int = 0
    told: int = 0

    @property
    def takes_jobs(self) -> bool:
        """Whether it may be given a job: whether Ray ever finds it a place is not known before it has begun."""
        return self.ready and not self.draining

    def tell(self, message: Instruction) -> None:
        """Send a message after all earlier ones; if the worker is gone, its end says so."""
        self.actor.tell.remote(self.told, encode_instruction(message))
        self.told += 1


def free_place(seats: Iterable[Seat], node: str) -> int:
    """The first place of a node that no worker has."""
    taken = {seat.place for seat in seats if seat.node == node}
    return next(place for place in range(len(taken) + 1) if place not in taken)


def end_actors(ray: Any, seats: Iterable[Seat]) -> None:
    """Kill these actors; their worker processes end with them."""
    for seat in seats:
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError, ValueError):  # the cluster may be gone
            ray.kill(seat.actor)
