"""The messages between driver and worker, besides jobs and their results, and the codec that carries them.

A local worker receives them as Python objects through its pipe. To another machine they travel as JSON of declared
types, never as a pickle; anything else is refused. Numbers come back as they were, NaN and infinities included.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from batchscale.errors import RunError, one_line
from batchscale.study.failure import Failure
from batchscale.workers.remote_setup import RemoteSetup
from batchscale.workers.runner import Job, JobResult, LossReason, Setup, WorkerActivity


@dataclass(frozen=True)
class Begin:
    """The driver's first message. ``remote`` is for a worker on another machine: what it needs and must verify."""

    setup: Setup
    worker_id: str
    remote: RemoteSetup | None = None


@dataclass(frozen=True)
class Discard:
    """Drop these trials of a study; without any, the whole study."""

    batch_size: int
    trial_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finish:
    """Drop these finished trials of a study, by their last steps, from memory and store their states."""

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
    """The machine is about to be preempted: end the running job, drop queued ones, save states, and exit.

    Never sent by a driver: a worker queues it for itself when its scheduler signals it.
    """


@dataclass(frozen=True)
class Ready:
    """The worker can take jobs. ``host`` is its machine.

    ``states_problem`` is the reason why it cannot store states at the remote path, if it cannot.
    """

    host: str = ""
    states_problem: str = ""


@dataclass(frozen=True)
class Refused:
    """The worker cannot begin, because its machine lacks something, with a message for the user."""

    host: str
    reason: str


@dataclass(frozen=True)
class Started:
    """The worker has started a job: from now on its death is this job's failure."""

    job_id: int


@dataclass(frozen=True)
class Answered:
    """A finished job, and the memory of the worker's process."""

    result: JobResult
    memory_bytes: int


@dataclass(frozen=True)
class Raised:
    """A job that raised."""

    job_id: int
    loss: LossReason
    reason: Failure


@dataclass(frozen=True)
class Saved:
    """The answer to `Stop`: all states that are worth a checkpoint have one."""


Instruction = Begin | Job | Discard | Finish | Stop | Drain | Leave
Reply = Ready | Refused | Started | WorkerActivity | Answered | Raised | Saved

_INSTRUCTIONS = (Begin, Job, Discard, Finish, Stop, Drain)
REPLIES = (Ready, Refused, Started, WorkerActivity, Answered, Raised, Saved)


class Codec:
    """Encodes values of named types as bytes and back. ``subject`` begins the error about any other message."""

    def __init__(self, types: Mapping[str, Any], subject: str) -> None:
        self._types = types
        self._subject = subject

    @cached_property
    def _adapters(self) -> dict[str, TypeAdapter[Any]]:
        return {name: TypeAdapter(type_) for name, type_ in self._types.items()}  # on first use: it takes a moment

    def encode(self, name: str, value: object) -> bytes:
        """Return a value of the type with this name as one line of JSON."""
        return json.dumps([name, self._adapters[name].dump_python(value, mode="json")]).encode()

    def decode(self, data: bytes) -> tuple[str, Any]:
        """Return the type's name and the validated value.

        Raises:
            RunError: it is of none of the types.
        """
        try:
            name, value = json.loads(data)
            adapter = self._adapters[name]
            return name, adapter.validate_python(tuple(value) if isinstance(value, list) else value)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"{self._subject} one of {', '.join(self._types)}. Found something else ({one_line(error, 200)}): "
                "start the same version of batchscale on all hosts."
            ) from None


_TO_WORKER = Codec({type_.__name__: type_ for type_ in _INSTRUCTIONS}, "A driver's message is")
_TO_DRIVER = Codec({type_.__name__: type_ for type_ in REPLIES}, "A worker's reply is")


def encode_instruction(message: Instruction) -> bytes:
    """Encode a message of the driver."""
    return _TO_WORKER.encode(type(message).__name__, message)


def decode_instruction(data: bytes) -> Instruction:
    """Decode a message of the driver.

    Raises:
        RunError: this is no message of a driver.
    """
    message: Instruction = _TO_WORKER.decode(data)[1]
    return message


def encode_reply(reply: Reply) -> bytes:
    """Encode a reply of a worker."""
    return _TO_DRIVER.encode(type(reply).__name__, reply)


def decode_reply(data: bytes) -> Reply:
    """Decode a reply of a worker.

    Raises:
        RunError: this is no reply of a worker.
    """
    reply: Reply = _TO_DRIVER.decode(data)[1]
    return reply
