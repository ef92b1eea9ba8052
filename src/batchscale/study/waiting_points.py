"""The points of a search that may be trained now, in the order of its rule, kept while points are taken and come back.

Working the order out anew for every job would make a search of ten times the trials a hundred times as costly.
"""

from bisect import bisect_left, insort
from collections.abc import Container, Iterator, Mapping
from heapq import merge

from batchscale.study.knowledge import UNHEARD_OF
from batchscale.study.needs import Need, Offer
from batchscale.study.search_state import SearchState
from batchscale.study.stop_rules.rule import Rejoins

Basis = tuple[int, int]
"""The finish and the likely number of points that an order holds for."""

RankedPoint = tuple[float, int]
"""Where a rule puts a point, and the point: no two are the same."""


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
    """Points in the order of a rule that has one of its own; a point that comes back is put where it belongs.

    They stand in one line, and in one for each holder as well: each worker finds its own without a look at all others.
    """

    def __init__(self, search: SearchState, busy: Container[int], holders: Mapping[int, str]) -> None:
        self._search = search
        self._busy = busy
        self._holders = holders
        self._basis: Basis = (-1, -1)
        self._clear()

    def _clear(self) -> None:
        self._needs: list[Need] = []
        self._ranks: list[RankedPoint] = []
        self._places: dict[int, tuple[RankedPoint, str | None]] = {}  # by point: its rank, and whose line it stands in
        self._lines: dict[str | None, list[RankedPoint]] = {}

    def offer(self, basis: Basis) -> Offer:
        """What may be trained now."""
        (until, likely), self._basis = self._basis, basis
        gone = range(basis[1], likely)
        if until != basis[0] or any(self._search.step_of(point) >= 0 for point in gone):
            self._clear()
        for point in gone:  # nothing is known of them: the others stay as they are
            self._drop(point)
        for point in range(max(likely, 0), basis[1]):  # in the place of trials that diverged
            self.put_back(point)
        if not self._needs:
            self._clear()
            self._needs = list(self._search.order(self._busy))
            self._ranks = [self._rank(need.point) for need in self._needs]
            for rank in self._ranks:
                self._line_up(rank)
        return Offer(self._needs)

    def take(self, point: int) -> None:
        """A point is trained from now on."""
        if point in self._places:
            self._drop(point)
        else:
            self._clear()

    def put_back(self, point: int) -> None:
        """A point is trained no more."""
        search, rule = self._search, self._search.rules.rule
        if not self._needs or point in self._busy or not search.is_needed(point):
            return
        until = self._needs[0].until
        rejoins = rule.rejoins(until, search.step_of(point), search.rules.steps)
        if rejoins is Rejoins.UNKNOWN:
            self._clear()
        elif rejoins is Rejoins.OFFER and point not in self._places:
            rank = self._rank(point)
            place = bisect_left(self._ranks, rank)
            self._needs.insert(place, Need(point, until))
            self._ranks.insert(place, rank)
            self._line_up(rank)

    def move(self, point: int) -> None:
        """A point may have another holder."""
        if point in self._places:
            rank = self._leave_line(point)
            self._line_up(rank)

    def own(self, worker: str) -> Iterator[Need]:
        """What nobody holds, or this worker does, best first."""
        until = self._needs[0].until if self._needs else 0
        lines = (self._lines.get(holder, []) for holder in (None, worker))
        return (Need(point, until) for _, point in merge(*lines))

    def _line_up(self, rank: RankedPoint) -> None:
        point = rank[1]
        holder = self._holders.get(point) if self._search.step_of(point) >= 0 else None
        self._places[point] = rank, holder
        insort(self._lines.setdefault(holder, []), rank)

    def _leave_line(self, point: int) -> RankedPoint:
        rank, holder = self._places.pop(point)
        del self._lines[holder][bisect_left(self._lines[holder], rank)]
        return rank

    def _drop(self, point: int) -> None:
        if point in self._places:
            place = bisect_left(self._ranks, self._leave_line(point))
            del self._needs[place], self._ranks[place]

    def _rank(self, point: int) -> RankedPoint:
        points = self._search.points
        return self._search.rules.rule.rank(point, points[point] if point < len(points) else UNHEARD_OF)


class WaitingPoints:
    """What a search has on offer, which of its points are being trained, and which worker has the state of a point."""

    def __init__(self, search: SearchState) -> None:
        self._search = search
        self._busy: set[int] = set()
        self._holders: dict[int, str] = {}
        self._closed = False
        self._offer: tuple[Basis, Offer] | None = None
        self.forget()

    @property
    def num_busy(self) -> int:
        """How many points are being trained."""
        return len(self._busy)

    def close(self) -> None:
        """Nothing is on offer from now on."""
        self._closed = True

    def forget(self) -> None:
        """Anything may have changed."""
        self._offer = None
        self._order: InTurn | ByRank
        if self._search.rules.rule.in_turn:
            self._order = InTurn(self._search, self._busy)
        else:
            self._order = ByRank(self._search, self._busy, self._holders)

    def offer(self) -> Offer:
        """What may be trained now, best first; a view that holds until the next change."""
        if self._closed:
            return Offer()
        basis = self._search.until, self._search.likely_count()
        if self._offer is None or self._offer[0] != basis:
            self._offer = basis, self._order.offer(basis)
        return self._offer[1]

    def own(self, worker: str) -> Iterator[Need]:
        """Those of the offer whose state no other worker holds, found one by one: a job takes few of them."""
        offer = self.offer()
        if isinstance(self._order, ByRank) and not self._closed:
            return self._order.own(worker)
        return (need for need in offer if not self.is_held_by_another(need.point, worker))  # few have begun

    def is_held_by_another(self, point: int, worker: str) -> bool:
        """Whether another worker has the state of a point; there is none at step -1."""
        return self._holders.get(point, worker) != worker and self._search.step_of(point) >= 0

    def held_by_others(self, worker: str) -> list[Need]:
        """Those of the offer whose state another worker has."""
        return [need for need in self.offer() if self.is_held_by_another(need.point, worker)]

    def hold(self, point: int, worker: str | None) -> None:
        """A worker has the state of a point from now on; None: nobody has."""
        if worker is None:
            self._holders.pop(point, None)
        else:
            self._holders[point] = worker
        if isinstance(self._order, ByRank):
            self._order.move(point)

    def take(self, point: int, skipped: range = range(0)) -> None:
        """A point is trained from now on; those that it is the first to come behind are known of as well."""
        self._busy.add(point)
        self._offer = None
        self._order.take(point)
        for one in skipped:
            self._order.put_back(one)

    def put_back(self, point: int) -> None:
        """A point is trained no more; something may have been learned of it."""
        self._busy.discard(point)
        self._offer = None
        self._order.put_back(point)
