"""The driver's handle of a worker on a Ray cluster, and the validation of its actor's answers."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, final

from batchscale import __version__
from batchscale.errors import RunError, one_line
from batchscale.study.failure import Failure
from batchscale.workers.handle import WorkerHandle
from batchscale.workers.messages import Instruction, encode_instruction

_NODE_FIELDS = {"node": str, "host": str, "version": str, "sees_marker": bool, "pid": int}
_INVALID = "A worker on another machine answers as this version of batchscale does. It did not: install the same there."


class Stage(Enum):
    """The stages of a worker: waiting for a node, its process starting there, or connected."""

    PLACING = auto()
    STARTING = auto()
    CONNECTED = auto()


@final
@dataclass(eq=False)
class RayWorker(WorkerHandle):
    """A worker: its actor, and its node once it has one. ``sent`` numbers the messages."""

    actor: Any
    stage: Stage = Stage.PLACING
    node: str = ""
    place: int = 0
    pid: int = 0
    sent: int = 0

    @property
    def takes_jobs(self) -> bool:
        """True if it is ready: before that, Ray may never find it a node."""
        return self.ready and not self.draining

    def send(self, message: Instruction) -> None:
        """Send a message after all earlier ones; if the worker is gone, its end is detected later."""
        self.actor.send.remote(self.sent, encode_instruction(message))
        self.sent += 1


def free_place(workers: Iterable[RayWorker], node: str) -> int:
    """Return the first place of a node that no worker has."""
    used_places = {worker.place for worker in workers if worker.node == node}
    return next(place for place in range(len(used_places) + 1) if place not in used_places)


def end_actors(ray: Any, workers: Iterable[RayWorker]) -> None:
    """Kill the actors of these workers; their processes end with them."""
    for worker in workers:
        with contextlib.suppress(ray.exceptions.RayError, ConnectionError, ValueError):  # the cluster may be gone
            ray.kill(worker.actor)


def check_node(answer: object) -> dict[str, Any]:
    """Validate the answer of `WorkerActor.describe_node`.

    Raises:
        RunError: it is something else.
    """
    if not isinstance(answer, dict) or {name: type(value) for name, value in answer.items()} != _NODE_FIELDS:
        raise RunError(_INVALID)
    return answer


def check_messages(answer: object) -> tuple[list[bytes], Failure | None]:
    """Validate the answer of `WorkerActor.receive`; the messages themselves are validated when they are decoded.

    Raises:
        RunError: it is something else.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise RunError(_INVALID)
    messages, end = answer
    if not isinstance(messages, list) or not all(isinstance(data, bytes) for data in messages):
        raise RunError(_INVALID)
    return messages, None if end is None else _check_end(end)


def _check_end(end: object) -> Failure:
    if not isinstance(end, tuple) or len(end) != 2:
        raise RunError(_INVALID)
    text, lines = end
    if not isinstance(text, str) or not isinstance(lines, tuple) or not all(isinstance(line, str) for line in lines):
        raise RunError(_INVALID)
    return Failure(text, lines)


def find_version_problem(node: dict[str, Any]) -> str | None:
    """Return why a node cannot start a worker at all; None if it can."""
    if node["version"] == __version__:
        return None
    version = f"version {one_line(node['version'])}" if node["version"] else "none"
    return (
        f"Node {one_line(node['host'])} cannot train this experiment. It must have batchscale {__version__}. Found "
        f"{version}: install the same environment there."
    )
