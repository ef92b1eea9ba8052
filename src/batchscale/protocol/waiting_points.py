"""The points of a search that may be trained now, in the order of its rule, kept while points are taken and come back.

Working the order out anew for every job would make a search of ten times the trials a hundred times as costly.
"""

from bisect import bisect_left, insort
from collections.abc import Container

from batchscale.protocol.needs import Need, Offer
from batchscale.protocol.search_state import SearchState


class WaitingPoints:
    """The offer of one search. ``busy`` are the points that are being trained, as their owner keeps them."""

    def __init__(self, search: SearchState, busy: Container[int]) -> None:
        self._search = search
        self._busy = busy
        self._basis = (-1, -1)  # the finish and the likely number of points that the order holds for
        self._ordered: dict[int, Need] = {}  # of a rule with an order of its own
        self._started: list[int] = []  # of all other rules: points in training first,
        self._blank: list[int] = []  # then those that were taken and brought nothing, then points never heard of
        self._offer: Offer | None = None

    def offer(self) -> Offer:
        """What may be trained now, best first."""
        search = self._search
        basis = search.until, search.likely_count()
        if search.rules.rule.in_turn:
            return self._in_turn(basis)
        if basis != self._basis or not self._ordered:
            self._basis = basis
            self._ordered = {need.point: need for need in search.order(self._busy)}
        return Offer(self._ordered.values())

    def _in_turn(self, basis: tuple[int, int]) -> Offer:
        until, likely = basis
        if until != self._basis[0]:
            waiting = [point for point in self._search.open_points() if point not in self._busy]
            self._started = [point for point in waiting if self._search.step_of(point) >= 0]
            self._blank = [point for point in waiting if self._search.step_of(point) < 0]
        if self._offer is None or basis != self._basis:
            started, blank = (points[: bisect_left(points, likely)] for points in (self._started, self._blank))
            listed = [Need(point, until) for point in (*started, *blank)]
            self._offer = Offer(listed, range(len(self._search.points), likely), until)
        self._basis = basis
        return self._offer

    def take(self, point: int) -> None:
        """A point is trained from now on."""
        self._offer = None
        self._ordered.pop(point, None)
        for points in (self._started, self._blank):
            place = bisect_left(points, point)
            if place < len(points) and points[place] == point:
                del points[place]

    def put_back(self, point: int) -> None:
        """A point is trained no more; something may have been learned of it."""
        self._offer = None
        search, rule, step = self._search, self._search.rules.rule, self._search.step_of(point)
        if rule.in_turn:
            self.take(point)
            if search.is_open(point):
                insort(self._started if step >= 0 else self._blank, point)
        elif self._ordered:
            first = next(iter(self._ordered.values()))
            if point in self._ordered or not search.is_needed(point) or not rule.keeps_order(first, step):
                self._ordered = {}

    def forget(self) -> None:
        """Anything may have changed."""
        self._basis, self._offer, self._ordered = (-1, -1), None, {}
