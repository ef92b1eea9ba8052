"""Messages as checked data: what crosses to another machine is JSON of declared kinds, never a pickle.

A message that is none of them is refused. Numbers come back as they were, NaN and infinities included.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter

from batchscale.errors import RunError, one_line
from batchscale.workers.messages import (
    Answered,
    Begin,
    Drain,
    Forget,
    Instruction,
    Kept,
    Raised,
    Ready,
    Refused,
    Reply,
    Shelve,
    Started,
    Stop,
)
from batchscale.workers.runner import Job, WorkerActivity


class Codec:
    """Values of named kinds to bytes and back. ``who`` says in the refusal whose messages these are."""

    def __init__(self, kinds: Mapping[str, Any], who: str) -> None:
        self._kinds = kinds
        self._who = who

    @cached_property
    def _adapters(self) -> dict[str, TypeAdapter[Any]]:
        return {name: TypeAdapter(kind) for name, kind in self._kinds.items()}  # when first used: it takes a moment

    def encode(self, name: str, value: object) -> bytes:
        """A value of the kind with this name, on one line."""
        return json.dumps([name, self._adapters[name].dump_python(value, mode="json")]).encode()

    def decode(self, data: bytes) -> tuple[str, Any]:
        """The kind's name and the value, checked.

        Raises:
            RunError: it is none of the kinds.
        """
        try:
            name, value = json.loads(data)
            adapter = self._adapters[name]
            return name, adapter.validate_python(tuple(value) if isinstance(value, list) else value)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(
                f"{self._who} one of {', '.join(self._kinds)}. Found something else ({one_line(error, 200)}): start "
                "the same version of batchscale on all hosts."
            ) from None


_ASKED = (Begin, Job, Forget, Shelve, Stop, Drain)
REPLIES = (Ready, Refused, Started, WorkerActivity, Answered, Raised, Kept)
_TO_WORKER = Codec({kind.__name__: kind for kind in _ASKED}, "A driver's message is")
_TO_DRIVER = Codec({kind.__name__: kind for kind in REPLIES}, "A worker's reply is")


def encode_instruction(message: Instruction) -> bytes:
    """What the driver says to a worker, as one line of JSON."""
    return _TO_WORKER.encode(type(message).__name__, message)


def decode_instruction(data: bytes) -> Instruction:
    """What the driver said.

    Raises:
        RunError: this is no message of a driver.
    """
    message: Instruction = _TO_WORKER.decode(data)[1]
    return message


def encode_reply(reply: Reply) -> bytes:
    """What a worker says to the driver, as one line of JSON."""
    return _TO_DRIVER.encode(type(reply).__name__, reply)


def decode_reply(data: bytes) -> Reply:
    """What a worker said.

    Raises:
        RunError: this is no reply of a worker.
    """
    reply: Reply = _TO_DRIVER.decode(data)[1]
    return reply
