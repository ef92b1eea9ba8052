"""What workers of SLURM say besides the replies of every worker: they are there, they live, they leave."""

from dataclasses import dataclass
from enum import StrEnum

from batchscale.workers.codec import REPLIES, Codec
from batchscale.workers.messages import Reply


class Departure(StrEnum):
    """Why a worker leaves."""

    TIME_LIMIT = "its time limit is near"
    CANCELLED = "SLURM asked it to end"


@dataclass(frozen=True)
class Arrived:
    """A worker's first letter: which task of which job array it is, how often that was started before, and where.

    Above ``memory_bytes`` it had better start afresh.
    """

    job: str
    place: int
    restarts: int
    node: str
    memory_bytes: int


@dataclass(frozen=True)
class Alive:
    """A sign of life."""


@dataclass(frozen=True)
class Leaving:
    """The worker takes up no job any more; what it trains ends at the next chunk."""

    why: Departure


@dataclass(frozen=True)
class Left:
    """The worker's last letter: all that it will ever say has been said."""


Letter = Reply | Arrived | Alive | Leaving | Left

_KINDS = (*REPLIES, Arrived, Alive, Leaving, Left)
_LETTERS = Codec({kind.__name__: kind for kind in _KINDS}, "A worker's letter is")


def encode_letter(letter: Letter) -> bytes:
    """A letter as one line of JSON."""
    return _LETTERS.encode(type(letter).__name__, letter)


def decode_letter(data: bytes) -> Letter:
    """What a worker wrote.

    Raises:
        RunError: this is no letter of a worker.
    """
    letter: Letter = _LETTERS.decode(data)[1]
    return letter
