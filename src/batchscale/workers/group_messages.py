"""What the chief of a cluster and the leads of its groups say to each other: checked data, with a state's bytes beside.

Those of `messages` are used as they are; here are the ones that only hosts without a shared disk need.
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from batchscale.cluster.frames import pack_parts, unpack_parts
from batchscale.errors import RunError, one_line
from batchscale.workers.messages import Answered, Drain, Forget, Kept, Raised, Shelve, Stop
from batchscale.workers.runner import Job, WorkerActivity


@dataclass(frozen=True)
class WishToStop:
    """A host of the group was asked to stop: the run should."""


@dataclass(frozen=True)
class KeepState:
    """Store the state file of a trial; remove it if ``data`` is empty."""

    name: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class WantState:
    """Send a state file of a trial."""

    name: str


@dataclass(frozen=True)
class FoundState:
    """What was asked for; empty if there is none."""

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class GroupGone:
    """The group was lost; the chief tells it to itself, in order with what the group has said before."""

    reason: str


_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Job, Forget, Shelve, Stop, Drain, FoundState),
        *(WorkerActivity, Answered, Raised, Kept, WishToStop, KeepState, WantState, GroupGone),
    )
}
"""All that is ever said: anything else is refused."""


def encode(message: object) -> bytes:
    """A message as bytes."""
    name = type(message).__name__
    values = TypeAdapter(_KINDS[name]).dump_python(message, mode="json", exclude={"data"})
    return pack_parts([json.dumps([name, values]).encode(), getattr(message, "data", b"")])


def decode(payload: bytes) -> Any:
    """The message that `encode` wrote.

    Raises:
        RunError: it is none of them.
    """
    try:
        text, data = unpack_parts(payload)
        name, values = json.loads(text)
        if name in (KeepState.__name__, FoundState.__name__):
            values["data"] = data
        return TypeAdapter(_KINDS[name]).validate_python(values)
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise RunError(
            f"Groups of hosts exchange {', '.join(_KINDS)}. Found something else ({one_line(error, 200)}): start the "
            "same version of batchscale on all hosts."
        ) from None
