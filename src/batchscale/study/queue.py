"""The queue of a search: the trials that may be trained now, in the order of the stop rule.

`SearchState` decides which points must be trained; the queue keeps them sorted while trials start and come back, so
that a job costs a few comparisons. Sorting again for every job would make a search of ten times the trials a hundred
times as costly. Which worker takes a trial off the queue is the scheduler's choice (``run/scheduler.py``).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import merge

from batchscale.study.search import SearchState
from batchscale.study.stop_rules.rule import Requeue
from batchscale.study.trial import UNSTARTED, TrialRequest

RankedPoint = tuple[float, int]
"""The rank that a rule gives a point, and the point: no two are the same."""


class TrialQueue:
    """The ready trials of a search, the points being trained, and the worker that holds the state of each point.

    Ready trials are in one list, and in one for each holder of states as well: a worker finds its own without a scan.
    """

    def __init__(self, search: SearchState) -> None:
        self._search = search
        self._running: set[int] = set()
        self._holders: dict[int, str] = {}
        self._closed = False
        self._stale = True  # something changed since `ready` was called
        self.reset()

    def reset(self) -> None:
        """Sort everything again at the next call."""
        self._finish, self._count = -1, -1  # of the search, when the order was last updated
        self._clear()

    def close(self) -> None:
        """Make nothing ready from now on."""
        self._closed = True

    @property
    def num_running(self) -> int:
        """The number of points being trained."""
        return len(self._running)

    # --- what is ready ---------------------------------------------------------------------------------------

    def ready(self) -> Sequence[TrialRequest]:
        """Return the requests that may be trained now, best first; valid until the next change."""
        if self._closed:
            return ()
        self._follow_search()
        if self._stale and not self._requests:
            self._sort()
        self._stale = False
        return self._requests

    def for_worker(self, worker_id: str) -> Iterator[TrialRequest]:
        """Yield the ready requests whose state no other worker holds, lazily: a job takes few of them."""
        ready = self.ready()
        until = ready[0].until if ready else 0
        ranks = (self._by_holder.get(holder, []) for holder in (None, worker_id))
        return (TrialRequest(point, until) for _, point in merge(*ranks))

    def held_elsewhere(self, worker_id: str) -> list[TrialRequest]:
        """Return the ready requests whose state another worker holds."""
        return [request for request in self.ready() if self._places[request.point][1] not in (None, worker_id)]

    # --- changes ---------------------------------------------------------------------------------------------

    def set_holder(self, point: int, worker_id: str | None) -> None:
        """Set the worker that holds the state of a point; None: no worker."""
        if worker_id is None:
            self._holders.pop(point, None)
        else:
            self._holders[point] = worker_id
        if point in self._places:
            self._add_to_holder(self._remove_from_holder(point))

    def start(self, point: int, skipped: range = range(0)) -> None:
        """Mark a point as being trained; ``skipped`` are unstarted points before it, which the search has from now."""
        self._running.add(point)
        self._stale = True
        if point in self._places:
            self._remove(point)
        else:
            self._clear()
        for skipped_point in skipped:
            self._put_back(skipped_point)

    def release(self, point: int) -> None:
        """Mark a point as trained no more; its summary may have changed."""
        self._running.discard(point)
        self._stale = True
        self._put_back(point)

    def _follow_search(self) -> None:
        """Update the order after the finish or the number of points of the search changed."""
        finish, count = self._search.until, self._search.likely_count()
        if (finish, count) == (self._finish, self._count):
            return
        dropped, added = range(count, self._count), range(max(self._count, 0), count)
        if finish != self._finish or any(self._search.step_of(point) >= 0 for point in dropped):
            self._clear()
        self._finish, self._count, self._stale = finish, count, True
        for point in dropped:  # these have no measurements: the others stay as they are
            if point in self._places:
                self._remove(point)
        for point in added:  # these replace trials that diverged
            self._put_back(point)

    # --- the order -------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._requests: list[TrialRequest] = []
        self._ranks: list[RankedPoint] = []
        self._places: dict[int, tuple[RankedPoint, str | None]] = {}  # by point: its rank, and the holder's list
        self._by_holder: dict[str | None, list[RankedPoint]] = {}
        self._stale = True

    def _sort(self) -> None:
        self._clear()
        self._requests = list(self._search.order(self._running))
        self._ranks = [self._rank(request.point) for request in self._requests]
        for rank in self._ranks:
            self._add_to_holder(rank)

    def _put_back(self, point: int) -> None:
        """Insert a point by its rank where the rule allows that; else everything is sorted again."""
        search = self._search
        if not self._requests or point in self._running or not search.is_requested(point):
            return
        until = self._requests[0].until
        requeue = search.rules.rule.requeue(until, search.step_of(point), search.rules.steps)
        if requeue is Requeue.REORDER:
            self._clear()
        elif requeue is Requeue.NOW and point not in self._places:
            rank = self._rank(point)
            index = bisect_left(self._ranks, rank)
            self._requests.insert(index, TrialRequest(point, until))
            self._ranks.insert(index, rank)
            self._add_to_holder(rank)

    def _remove(self, point: int) -> None:
        index = bisect_left(self._ranks, self._remove_from_holder(point))
        del self._requests[index], self._ranks[index]

    def _add_to_holder(self, rank: RankedPoint) -> None:
        point = rank[1]
        holder = self._holders.get(point) if self._search.step_of(point) >= 0 else None
        self._places[point] = rank, holder
        insort(self._by_holder.setdefault(holder, []), rank)

    def _remove_from_holder(self, point: int) -> RankedPoint:
        rank, holder = self._places.pop(point)
        del self._by_holder[holder][bisect_left(self._by_holder[holder], rank)]
        return rank

    def _rank(self, point: int) -> RankedPoint:
        points = self._search.points
        return self._search.rules.rule.rank(point, points[point] if point < len(points) else UNSTARTED)
