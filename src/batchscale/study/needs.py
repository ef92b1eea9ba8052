"""What a search asks for and what it gives: needs while it runs, endings of its trials once they are certain."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from batchscale.records.model import Status

FINAL = ("goal", "diverged", "failed")
"""Why trials end that nothing asked for later trains longer; all other reasons lie outside the trial."""


@dataclass(frozen=True)
class Need:
    """A point that must be known further: up to ``until``, an evaluation step."""

    point: int
    until: int


@dataclass(frozen=True)
class Offer:
    """The needs that may be trained now, best first: those that are ``listed``, then all points of a range.

    Nothing is known of the points of the range, so that they need no list: each must be known up to ``until``.
    """

    listed: Collection[Need] = ()
    fresh: range = range(0)
    until: int = 0

    def __len__(self) -> int:
        return len(self.listed) + len(self.fresh)

    def __iter__(self) -> Iterator[Need]:
        yield from self.listed
        for point in self.fresh:
            yield Need(point, self.until)


@dataclass(frozen=True)
class Ending:
    """How a trial ends: its status, the last step that is recorded, and why there."""

    status: Status
    step: int
    reason: str

    @property
    def may_go_on(self) -> bool:
        """Whether a larger step budget, or more finishers, could train the trial longer."""
        return self.reason not in FINAL
