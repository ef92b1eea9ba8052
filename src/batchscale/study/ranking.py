"""Where the points of a search stand to each other, kept in order.

A search asks after every measurement how many trials are lost and which reached the goal first. Looking at all its
points each time would make a search of ten times the trials a hundred times as costly; here the news of one point costs
a few comparisons.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

Pair = tuple[int, int]
"""A step and the point that it belongs to."""


@dataclass(frozen=True, slots=True)
class Rank:
    """What one point means to the others.

    It is lost to the search if the finish is at ``lost_from`` or later (None: never). ``goal`` is the step at which it
    reached the goal (None: it has not), ``earliest_goal`` the first at which it may.
    """

    lost_from: int | None = None
    goal: int | None = None
    earliest_goal: int | None = None


@dataclass
class Ranking:
    """The ranking of all points that are known of."""

    _filed: dict[int, Rank] = field(default_factory=dict)
    _lost: list[Pair] = field(default_factory=list)
    _lost_points: list[int] = field(default_factory=list)
    _goals: list[Pair] = field(default_factory=list)
    _earliest: list[Pair] = field(default_factory=list)

    def file(self, point: int, rank: Rank) -> None:
        """Put a point where it stands now."""
        before = self._filed.get(point, _NOWHERE)
        if rank == before:
            return
        if rank == _NOWHERE:
            del self._filed[point]
        else:
            self._filed[point] = rank
        _move(self._lost, point, before.lost_from, rank.lost_from)
        _move(self._goals, point, before.goal, rank.goal)
        _move(self._earliest, point, before.earliest_goal, rank.earliest_goal)
        if before.lost_from is None and rank.lost_from is not None:
            insort(self._lost_points, point)
        elif before.lost_from is not None and rank.lost_from is None:
            del self._lost_points[bisect_left(self._lost_points, point)]

    def num_lost(self, count: int, finish: int) -> int:
        """How many of the first ``count`` points are lost to a search with this finish."""
        found = bisect_right(self._lost, finish, key=_step)
        if found == len(self._lost):  # the usual case: trials diverge early
            return bisect_left(self._lost_points, count)
        return sum(point < count for _, point in islice(self._lost, found))

    def goals(self, count: int) -> Iterator[int]:
        """The steps at which the first ``count`` points reached the goal, growing."""
        return (step for step, point in self._goals if point < count)

    def earliest_goals(self, count: int, wanted: Callable[[int], bool] = lambda _point: True) -> Iterator[int]:
        """The steps at which those of the first ``count`` points that are wanted may first reach the goal, growing."""
        return (step for step, point in self._earliest if point < count and wanted(point))


_NOWHERE = Rank()


def _step(pair: Pair) -> int:
    return pair[0]


def _move(pairs: list[Pair], point: int, before: int | None, now: int | None) -> None:
    if before == now:
        return
    if before is not None:
        del pairs[bisect_left(pairs, (before, point))]
    if now is not None:
        insort(pairs, (now, point))
