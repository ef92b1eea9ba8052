"""The points of a search that may be trained now, in the order of its rule, kept while points are taken and come back.

Working the order out anew for every job would make a search of ten times the trials a hundred times as costly.
"""

from bisect import bisect_left, insort
from collections.abc import Container

from batchscale.protocol.knowledge import Knowledge
from batchscale.protocol.needs import Need, Offer
from batchscale.protocol.search_state import SearchState
from batchscale.protocol.stop_rules.rule import Rejoins

UNHEARD_OF = Knowledge()

Basis = tuple[int, int]
"""The finish and the likely number of points that an order holds for."""


class InTurn:
    """Points in their own order: those in training first, then those taken in vain, then those never heard of."""

    def __init__(self, search: SearchState, busy: Container[int]) -> None:
        self._search = search
        self._busy = busy
        self._until = -1
        self._started: list[int] = []
        self._blank: list[int] = []

    def offer(self, basis: Basis) -> Offer:
        """What may be trained now."""
        until, likely = basis
        if until != self._until:
            waiting = [point for point in self._search.open_points() if point not in self._busy]
            self._started = [point for point in waiting if self._search.step_of(point) >= 0]
            self._blank = [point for point in waiting if self._search.step_of(point) < 0]
            self._until = until
        started, blank = (points[: bisect_left(points, likely)] for points in (self._started, self._blank))
        listed = [Need(point, until) for point in (*started, *blank)]
        return Offer(listed, range(len(self._search.points), likely), until)

    def take(self, point: int) -> None:
        """A point is trained from now on."""
        for points in (self._started, self._blank):
            place = bisect_left(points, point)
            if place < len(points) and points[place] == point:
                del points[place]

    def put_back(self, point: int) -> None:
        """A point is trained no more."""
        self.take(point)
        if self._search.is_open(point):
            insort(self._started if self._search.step_of(point) >= 0 else self._blank, point)


class ByRank:
    """Points in the order of a rule that has one of its own; a point that comes back is put where it belongs."""

    def __init__(self, search: SearchState, busy: Container[int]) -> None:
        self._search = search
        self._busy = busy
        self._basis: Basis = (-1, -1)
        self._needs: list[Need] = []
        self._ranks: list[tuple[float, int]] = []

    def offer(self, basis: Basis) -> Offer:
        """What may be trained now."""
        (until, likely), self._basis = self._basis, basis
        gone = range(basis[1], likely)
        if until != basis[0] or any(self._search.step_of(point) >= 0 for point in gone):
            self._needs = []
        for point in gone if self._needs else ():  # nothing is known of them: the others stay as they are
            place, there = self._find(point)
            if there:
                del self._needs[place], self._ranks[place]
        for point in range(likely, basis[1]):  # in the place of trials that diverged
            self.put_back(point)
        if not self._needs:
            self._needs = list(self._search.order(self._busy))
            self._ranks = [self._rank(need.point) for need in self._needs]
        return Offer(self._needs)

    def take(self, point: int) -> None:
        """A point is trained from now on."""
        place, there = self._find(point)
        if there:
            del self._needs[place], self._ranks[place]
        else:
            self._needs = []

    def put_back(self, point: int) -> None:
        """A point is trained no more."""
        search, rule = self._search, self._search.rules.rule
        if not self._needs or point in self._busy or not search.is_needed(point):
            return
        until = self._needs[0].until
        rejoins = rule.rejoins(until, search.step_of(point), search.rules.steps)
        if rejoins is Rejoins.UNKNOWN:
            self._needs = []
        elif rejoins is Rejoins.OFFER:
            place, there = self._find(point)
            if not there:
                self._needs.insert(place, Need(point, until))
                self._ranks.insert(place, self._rank(point))

    def _find(self, point: int) -> tuple[int, bool]:
        """Where a point stands, or would stand, and whether it is there."""
        place = bisect_left(self._ranks, self._rank(point))
        return place, place < len(self._needs) and self._needs[place].point == point

    def _rank(self, point: int) -> tuple[float, int]:
        points = self._search.points
        return self._search.rules.rule.rank(point, points[point] if point < len(points) else UNHEARD_OF)


class WaitingPoints:
    """The offer of one search. ``busy`` are the points that are being trained, as their owner keeps them."""

    def __init__(self, search: SearchState, busy: Container[int]) -> None:
        self._search = search
        self._busy = busy
        self._offer: tuple[Basis, Offer] | None = None
        self.forget()

    def forget(self) -> None:
        """Anything may have changed."""
        self._offer = None
        kind = InTurn if self._search.rules.rule.in_turn else ByRank
        self._order: InTurn | ByRank = kind(self._search, self._busy)

    def offer(self) -> Offer:
        """What may be trained now, best first."""
        basis = self._search.until, self._search.likely_count()
        if self._offer is None or self._offer[0] != basis:
            self._offer = basis, self._order.offer(basis)
        return self._offer[1]

    def take(self, point: int) -> None:
        """A point is trained from now on."""
        self._offer = None
        self._order.take(point)

    def put_back(self, point: int) -> None:
        """A point is trained no more; something may have been learned of it."""
        self._offer = None
        self._order.put_back(point)
