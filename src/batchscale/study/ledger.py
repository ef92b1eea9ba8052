"""The searches of a study and which trial is which point: the part of ``study.json`` that a resumed run goes by.

Trial ids are consecutive over all searches of a study. A search that gets more trials after a later one began continues
in a further range of ids, so that its points stay the same points.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from batchscale.records.metadata.study import SearchMetadata
from batchscale.spec.space import SearchSpace


@dataclass
class Search:
    """One search: its space, and for each range of ids the first id and the first point."""

    space: SearchSpace
    ranges: list[tuple[int, int]]
    reason: str = ""


@dataclass
class Ledger:
    """All searches of a study, oldest first; the first is number 1."""

    searches: list[Search] = field(default_factory=list)

    def open_search(self, space: SearchSpace, first_trial_id: int, reason: str = "") -> None:
        """Add a search whose trials start at this id."""
        self.searches.append(Search(space, [(first_trial_id, 0)], reason))

    def trial_id(self, search: int, point: int) -> int | None:
        """The id of a point; None if its search has no range for it yet."""
        ranges = self.searches[search - 1].ranges
        if len(self.searches) == len(ranges) == 1:  # the usual case, and asked for every job
            return ranges[0][0] + point - ranges[0][1]
        first_id, first_point = max((r for r in ranges if r[1] <= point), key=lambda r: r[1])
        end = min((r[0] for s in self.searches for r in s.ranges if r[0] > first_id), default=None)
        trial_id = first_id + point - first_point
        return trial_id if end is None or trial_id < end else None

    def extend(self, search: int, point: int, first_trial_id: int) -> None:
        """Let a search go on at this point with new ids."""
        self.searches[search - 1].ranges.append((first_trial_id, point))

    def place(self, trial_id: int) -> tuple[int, int]:
        """The search and the point of a trial."""
        if len(self.searches) == len(self.searches[0].ranges) == 1:
            return 1, self.searches[0].ranges[0][1] + trial_id - self.searches[0].ranges[0][0]
        places = [(first_id, k, point) for k, s in enumerate(self.searches, 1) for first_id, point in s.ranges]
        first_id, search, point = max(place for place in places if place[0] <= trial_id)
        return search, point + trial_id - first_id

    @property
    def facts(self) -> tuple[SearchMetadata, ...]:
        """The searches as ``study.json`` keeps them."""
        return tuple(SearchMetadata(search.space, tuple(search.ranges), search.reason) for search in self.searches)

    @classmethod
    def of(cls, searches: Iterable[SearchMetadata]) -> "Ledger":
        """The ledger of the searches that ``study.json`` has."""
        return cls([Search(search.space, list(search.ranges), search.reason) for search in searches])
