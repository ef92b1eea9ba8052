"""The queue of a search: the trials that may be trained now, in the order of the stop rule.

`SearchState` decides which points must be trained; the queue keeps them sorted while trials start and come back, so
that a job costs a few comparisons. Sorting again for every job would make a search of ten times the trials a hundred
times as costly. Which worker takes a trial off the queue is the scheduler's choice (``run/scheduler.py``).
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge

from batchscale.study.search import SearchState
from batchscale.study.stop_rules.rule import Requeue
from batchscale.study.trial import UNSTARTED, TrialRequest

Basis = tuple[int, int]
"""The finish and the likely number of points that an order holds for."""

RankedPoint = tuple[float, int]
"""The rank that a rule gives a point, and the point: no two are the same."""


@dataclass(frozen=True)
class ReadyTrials:
    """The requests that may be trained now, best first: the ``listed`` ones, then every point of a range.

    The points of the range were never started, so they need no list: each is requested up to ``until``.
    """

    listed: Collection[TrialRequest] = ()
    unstarted: range = range(0)
    until: int = 0

    def __len__(self) -> int:
        return len(self.listed) + len(self.unstarted)

    def __iter__(self) -> Iterator[TrialRequest]:
        yield from self.listed
        for point in self.unstarted:
            yield TrialRequest(point, self.until)


class PointOrder:
    """Requests by point: trials with measurements first, then those started in vain, then unstarted ones."""

    def __init__(self, search: SearchState, running: Container[int]) -> None:
        self._search = search
        self._running = running
        self._until = -1
        self._measured: list[int] = []
        self._blank: list[int] = []

    def ready(self, basis: Basis) -> ReadyTrials:
        """Return the requests that may be trained now."""
        until, likely = basis
        if until != self._until:
            waiting = [point for point in self._search.undecided_points() if point not in self._running]
            self._measured = [point for point in waiting if self._search.step_of(point) >= 0]
            self._blank = [point for point in waiting if self._search.step_of(point) < 0]
            self._until = until
        measured, blank = (points[: bisect_left(points, likely)] for points in (self._measured, self._blank))
        listed = [TrialRequest(point, until) for point in (*measured, *blank)]
        return ReadyTrials(listed, range(len(self._search.points), likely), until)

    def remove(self, point: int) -> None:
        """Take a point out because it is trained from now on."""
        for points in (self._measured, self._blank):
            index = bisect_left(points, point)
            if index < len(points) and points[index] == point:
                del points[index]

    def put_back(self, point: int) -> None:
        """Sort a point in again that is trained no more."""
        self.remove(point)
        if self._search.is_undecided(point):
            insort(self._measured if self._search.step_of(point) >= 0 else self._blank, point)


class RankOrder:
    """Requests in the order of a rule that has one of its own; a point that comes back is inserted by its rank.

    Besides the one list there is one for each holder of states: a worker finds its own trials without a scan.
    """

    def __init__(self, search: SearchState, running: Container[int], holders: Mapping[int, str]) -> None:
        self._search = search
        self._running = running
        self._holders = holders
        self._basis: Basis = (-1, -1)
        self._clear()

    def _clear(self) -> None:
        self._requests: list[TrialRequest] = []
        self._ranks: list[RankedPoint] = []
        self._places: dict[int, tuple[RankedPoint, str | None]] = {}  # by point: its rank, and the holder's list
        self._by_holder: dict[str | None, list[RankedPoint]] = {}

    def ready(self, basis: Basis) -> ReadyTrials:
        """Return the requests that may be trained now."""
        (until, likely), self._basis = self._basis, basis
        dropped = range(basis[1], likely)
        if until != basis[0] or any(self._search.step_of(point) >= 0 for point in dropped):
            self._clear()
        for point in dropped:  # these have no measurements: the others stay as they are
            self._delete(point)
        for point in range(max(likely, 0), basis[1]):  # these replace trials that diverged
            self.put_back(point)
        if not self._requests:
            self._clear()
            self._requests = list(self._search.order(self._running))
            self._ranks = [self._rank(request.point) for request in self._requests]
            for rank in self._ranks:
                self._add_to_holder(rank)
        return ReadyTrials(self._requests)

    def remove(self, point: int) -> None:
        """Take a point out because it is trained from now on."""
        if point in self._places:
            self._delete(point)
        else:
            self._clear()

    def put_back(self, point: int) -> None:
        """Sort a point in again that is trained no more."""
        search, rule = self._search, self._search.rules.rule
        if not self._requests or point in self._running or not search.is_requested(point):
            return
        until = self._requests[0].until
        requeue = rule.requeue(until, search.step_of(point), search.rules.steps)
        if requeue is Requeue.REORDER:
            self._clear()
        elif requeue is Requeue.NOW and point not in self._places:
            rank = self._rank(point)
            index = bisect_left(self._ranks, rank)
            self._requests.insert(index, TrialRequest(point, until))
            self._ranks.insert(index, rank)
            self._add_to_holder(rank)

    def update_holder(self, point: int) -> None:
        """Move a point to the list of its present holder."""
        if point in self._places:
            self._add_to_holder(self._remove_from_holder(point))

    def for_worker(self, worker_id: str) -> Iterator[TrialRequest]:
        """Yield the requests whose state nobody holds, or this worker does, best first."""
        until = self._requests[0].until if self._requests else 0
        ranks = (self._by_holder.get(holder, []) for holder in (None, worker_id))
        return (TrialRequest(point, until) for _, point in merge(*ranks))

    def _add_to_holder(self, rank: RankedPoint) -> None:
        point = rank[1]
        holder = self._holders.get(point) if self._search.step_of(point) >= 0 else None
        self._places[point] = rank, holder
        insort(self._by_holder.setdefault(holder, []), rank)

    def _remove_from_holder(self, point: int) -> RankedPoint:
        rank, holder = self._places.pop(point)
        del self._by_holder[holder][bisect_left(self._by_holder[holder], rank)]
        return rank

    def _delete(self, point: int) -> None:
        if point in self._places:
            index = bisect_left(self._ranks, self._remove_from_holder(point))
            del self._requests[index], self._ranks[index]

    def _rank(self, point: int) -> RankedPoint:
        points = self._search.points
        return self._search.rules.rule.rank(point, points[point] if point < len(points) else UNSTARTED)


class TrialQueue:
    """The ready trials of a search, the points being trained, and the worker that holds the state of each point."""

    def __init__(self, search: SearchState) -> None:
        self._search = search
        self._running: set[int] = set()
        self._holders: dict[int, str] = {}
        self._closed = False
        self._ready: tuple[Basis, ReadyTrials] | None = None
        self.reset()

    @property
    def num_running(self) -> int:
        """The number of points being trained."""
        return len(self._running)

    def close(self) -> None:
        """Make nothing ready from now on."""
        self._closed = True

    def reset(self) -> None:
        """Sort everything again at the next call."""
        self._ready = None
        self._order: PointOrder | RankOrder
        if self._search.rules.rule.by_point:
            self._order = PointOrder(self._search, self._running)
        else:
            self._order = RankOrder(self._search, self._running, self._holders)

    def ready(self) -> ReadyTrials:
        """Return the requests that may be trained now, best first; valid until the next change."""
        if self._closed:
            return ReadyTrials()
        basis = self._search.until, self._search.likely_count()
        if self._ready is None or self._ready[0] != basis:
            self._ready = basis, self._order.ready(basis)
        return self._ready[1]

    def for_worker(self, worker_id: str) -> Iterator[TrialRequest]:
        """Yield the ready requests whose state no other worker holds, lazily: a job takes few of them."""
        ready = self.ready()
        if isinstance(self._order, RankOrder) and not self._closed:
            return self._order.for_worker(worker_id)
        return (request for request in ready if not self._is_held_elsewhere(request.point, worker_id))  # few are held

    def held_elsewhere(self, worker_id: str) -> list[TrialRequest]:
        """Return the ready requests whose state another worker holds."""
        return [request for request in self.ready() if self._is_held_elsewhere(request.point, worker_id)]

    def _is_held_elsewhere(self, point: int, worker_id: str) -> bool:
        return self._holders.get(point, worker_id) != worker_id and self._search.step_of(point) >= 0

    def set_holder(self, point: int, worker_id: str | None) -> None:
        """Set the worker that holds the state of a point; None: no worker."""
        if worker_id is None:
            self._holders.pop(point, None)
        else:
            self._holders[point] = worker_id
        if isinstance(self._order, RankOrder):
            self._order.update_holder(point)

    def start(self, point: int, skipped: range = range(0)) -> None:
        """Mark a point as being trained; ``skipped`` are the unstarted points before it, which are listed from now."""
        self._running.add(point)
        self._ready = None
        self._order.remove(point)
        for skipped_point in skipped:
            self._order.put_back(skipped_point)

    def release(self, point: int) -> None:
        """Mark a point as trained no more; its summary may have changed."""
        self._running.discard(point)
        self._ready = None
        self._order.put_back(point)
