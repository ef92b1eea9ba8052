"""A search of a study: which of its trials must be trained, how far, and when its result is certain.

Pure: no processes, files or clocks. The result of a search is DEFINED here from the outcomes of its trials alone, so
that records never depend on which trial happened to be trained first:

* Point i of the search (0, 1, …) has a first step that reaches the goal, g(i), and a step where it diverges, d(i);
  both may be infinite. T is the step budget, F the number of finishers.
* S(n), the finish over the first n points, is the F-th smallest g (points of other searches of the study
  included), at most T, where the stop rule is a race; each rule defines it (see ``stop_rules``), often just as T.
* Point i ends at S(n), or where the rule ends trials at the goal at g(i) if that comes first; it is INFEASIBLE if d(i)
  is not after its end.
* The search is the smallest n with the required number of points that are not INFEASIBLE (nor failed).

S(n) only falls with n, so a point that counts continues to count and "smallest n" is well defined. While trials run,
bounds on S(n) from both sides give the n that are certainly too small and the steps that are certainly needed.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, islice, repeat

from batchscale.study.stop_rules.rule import SearchRules
from batchscale.study.trial import TrialOutcome, TrialRequest, TrialSummary

StepOfPoint = tuple[int, int]
"""A step and the point that it belongs to."""


class PointIndex:
    """The points of a search, sorted by what its decisions ask for.

    A search asks after every measurement how many trials are lost and which reached the goal first. A scan of all
    points each time would make a search of ten times the trials a hundred times as costly; here the update of one point
    costs a few comparisons. ``recorded_count`` is the number of points up to the last recorded one.
    """

    def __init__(self, points: Sequence[TrialSummary], rules: SearchRules) -> None:
        self._points = points
        self._rules = rules
        self._keys: dict[int, tuple[int | None, int | None, int | None]] = {}  # what each point is sorted by below
        self._lost: list[StepOfPoint] = []  # by the earliest finish with which a point is lost
        self._lost_points: list[int] = []
        self._goals: list[StepOfPoint] = []  # by the step at which a point reached the goal
        self._earliest: list[StepOfPoint] = []  # by the first step at which a point may reach it
        self._undecided: list[int] = []
        self._undecided_finish = -1  # the finish that they are undecided with; -1: to be made from all points
        self.recorded_count = 0
        for point in range(len(points)):
            self.update(point)

    def update(self, point: int) -> None:
        """Sort a point in again after its summary changed."""
        trial, goal, earliest = self._points[point], None, None
        if self._rules.rule.depends_on_goals:
            goal, earliest = trial.reached_at, self._rules.earliest_goal(trial)
        lost = self._rules.lost_from(trial)
        before = self._keys.get(point, (None, None, None))
        if before != (lost, goal, earliest):
            self._keys[point] = lost, goal, earliest
            _move(self._lost, point, before[0], lost)
            _move(self._goals, point, before[1], goal)
            _move(self._earliest, point, before[2], earliest)
            if (before[0] is None) != (lost is None):
                _set_member(self._lost_points, point, present=lost is not None)
        if trial.recorded is not None:
            self.recorded_count = max(self.recorded_count, point + 1)
        if self._undecided_finish >= 0:
            present = self._rules.is_undecided(trial, self._undecided_finish)
            _set_member(self._undecided, point, present=present)

    def num_lost(self, count: int, finish: int) -> int:
        """Return how many of the first ``count`` points are lost to a search with this finish."""
        num_lost = bisect_right(self._lost, finish, key=_step)
        if num_lost == len(self._lost):  # the usual case: trials diverge early
            return bisect_left(self._lost_points, count)
        return sum(point < count for _, point in islice(self._lost, num_lost))

    def goals(self, count: int) -> Iterator[int]:
        """Yield the steps at which the first ``count`` points reached the goal, growing."""
        return (step for step, point in self._goals if point < count)

    def earliest_goals(self, count: int, select: Callable[[int], bool] = lambda _point: True) -> Iterator[int]:
        """Yield the first steps at which the selected ones of ``count`` points may reach the goal, growing."""
        return (step for step, point in self._earliest if point < count and select(point))

    def undecided(self, finish: int) -> list[int]:
        """Return the points that must be trained further with this finish, growing; the list must not be changed."""
        if finish != self._undecided_finish:
            is_undecided = self._rules.is_undecided
            self._undecided = [point for point, trial in enumerate(self._points) if is_undecided(trial, finish)]
            self._undecided_finish = finish
        return self._undecided


def _step(pair: StepOfPoint) -> int:
    return pair[0]


def _move(pairs: list[StepOfPoint], point: int, before: int | None, now: int | None) -> None:
    if before == now:
        return
    if before is not None:
        del pairs[bisect_left(pairs, (before, point))]
    if now is not None:
        insort(pairs, (now, point))


def _set_member(points: list[int], point: int, *, present: bool) -> None:
    index = bisect_left(points, point)
    is_member = index < len(points) and points[index] == point
    if present and not is_member:
        points.insert(index, point)
    elif is_member and not present:
        del points[index]


@dataclass(frozen=True)
class SearchCounts:
    """Counts over the started points of a search, for display.

    ``diverging`` points diverged and are not recorded yet; ``front`` is the last measured step of any point.
    """

    reached: int
    earliest_goal: int | None
    diverging: int
    steps: int
    front: int | None


@dataclass(frozen=True)
class Work:
    """Training that remains: the steps and evaluations of all trials, and the most steps of one of them."""

    steps: float = 0.0
    evaluations: float = 0.0
    longest: float = 0.0


class SearchState:
    """The trials of one search by point, and everything that follows from them.

    Whoever changes the summary of a trial calls `mark_changed`; then only that point is evaluated again.
    """

    def __init__(self, rules: SearchRules, points: Sequence[TrialSummary] = ()) -> None:
        self.rules = rules
        self.points: list[TrialSummary] = list(points)
        self._index: PointIndex | None = None  # None: to be made from all points
        self._count: int | None = None
        self._count_before = 0  # before the last change: it seldom changes
        self._likely: int | None = None
        self._until: int | None = None
        self._counts: SearchCounts | None = None

    def get_or_add(self, point: int) -> TrialSummary:
        """Return the summary of a point; a new point, and all before it, are added."""
        added = range(len(self.points), point + 1)
        self.points.extend(TrialSummary() for _ in added)
        if self._index is not None:
            for new_point in added:
                self._index.update(new_point)
        return self.points[point]

    def step_of(self, point: int) -> int:
        """Return the last measured step of a point; -1 if there is none."""
        return self.points[point].step if point < len(self.points) else -1

    def put(self, point: int, trial: TrialSummary) -> None:
        """Replace the summary of a point."""
        self.get_or_add(point)
        self.points[point] = trial
        self.mark_changed()

    def truncate(self, count: int) -> None:
        """Remove all points from this one on."""
        del self.points[count:]
        self.mark_changed()

    def mark_changed(self, point: int | None = None) -> None:
        """Update after the summary of a point changed; without a point: of any, or the rules."""
        self._count = self._likely = self._until = self._counts = None
        if point is None:
            self._index = None
        elif self._index is not None:
            self._index.update(point)

    @property
    def index(self) -> PointIndex:
        """The points, sorted."""
        if self._index is None:
            self._index = PointIndex(self.points, self.rules)
        return self._index

    # --- the finish ------------------------------------------------------------------------------------------

    def finish(self, count: int) -> int:
        """Return an upper bound of S(count), exact once every point is measured up to it."""
        return self._finish(self.index.goals(count))

    def finish_at_least(self, count: int) -> int:
        """Return a lower bound of S(count): an undecided point may reach the goal at its next evaluation."""
        unstarted = repeat(self.rules.steps[0], max(0, count - len(self.points)))
        return self._finish(merge(unstarted, self.index.earliest_goals(count)))

    def _finish(self, goal_steps: Iterable[int]) -> int:
        """Apply the rule to the goal steps; they are only computed if it depends on them."""
        rules = self.rules
        all_steps = merge(goal_steps, sorted(rules.others_reached)) if rules.rule.depends_on_goals else ()
        return rules.rule.finish(all_steps, rules.train_steps, rules.finishers)

    # --- the number of points --------------------------------------------------------------------------------

    def count(self) -> int:
        """Return the smallest n that may still be the search: certain once `decided`; at most ``max_attempts``.

        Points that are recorded belong to the search, also when fewer trials are required now.
        """
        if self._count is None:
            self._count = self._count_before = self._find_count()
        return self._count

    def _find_count(self) -> int:
        least = max(min(self.rules.trials, self.rules.max_attempts), self.index.recorded_count)
        most = max(self.rules.max_attempts, least)
        if least == most or self._is_enough(least):
            return least
        # a point that counts continues to count when n grows, so the n that are enough are all those from some n on
        before = self._count_before
        if least < before <= most and self._is_enough(before) and not self._is_enough(before - 1):
            return before
        more = 1
        while least + more < most and not self._is_enough(least + more):
            more *= 2
        return bisect_left(range(most), True, least + more // 2, min(least + more, most), key=self._is_enough)

    def _is_enough(self, count: int) -> bool:
        return self._num_feasible(count, self.finish_at_least(count)) >= self.rules.trials

    def likely_count(self) -> int:
        """Return the n that replaces every certain divergence at once: later points are started before they must be.

        A point that was only just started may reach the goal at its first evaluation: it is left out, or nothing would
        ever be certain.
        """
        if self._likely is None:
            count = self.count()
            earliest = self.index.earliest_goals(count, lambda point: self.points[point].step >= 0)
            num_lost = count - self._num_feasible(count, self._finish(earliest))
            self._likely = min(max(count, self.rules.trials + num_lost), self.rules.max_attempts)
        return self._likely

    def _num_feasible(self, count: int, finish: int) -> int:
        return count - self.index.num_lost(count, finish)

    # --- what to train, and the result -----------------------------------------------------------------------

    @property
    def until(self) -> int:
        """The step that every undecided point must be trained to."""
        if self._until is None:
            self._until = self.finish(self.count())
        return self._until

    def undecided_points(self) -> list[int]:
        """Return the started points that must be trained further, growing; the list must not be changed."""
        return self.index.undecided(self.until)

    def is_undecided(self, point: int) -> bool:
        """True if a started point must be trained further, provided that it belongs to the search."""
        return self.rules.is_undecided(self.points[point], self.until)

    def is_requested(self, point: int) -> bool:
        """True if a point must be started or trained further before the result is certain."""
        return point < self.likely_count() and (point >= len(self.points) or self.is_undecided(point))

    def requests(self) -> list[TrialRequest]:
        """Return a request for every point that must be trained before the result is certain, unstarted ones included.

        Points beyond `count` are likely needed (see `likely_count`) and come last.
        """
        until, likely = self.until, self.likely_count()
        started = self.undecided_points()
        started = started[: bisect_left(started, likely)]
        return [TrialRequest(point, until) for point in chain(started, range(len(self.points), likely))]

    def order(self, running: Container[int]) -> Iterator[TrialRequest]:
        """Yield the requests that may be trained now, best first; ``running`` holds the points being trained."""
        return self.rules.rule.order(self.requests(), self.points, self.rules.steps, running)

    def remaining_steps(self) -> tuple[int, int]:
        """Return the steps that all requests take together, and the most that one of them takes."""
        until, likely, started = self.until, self.likely_count(), self.undecided_points()
        steps = [until - max(self.points[point].step, 0) for point in started[: bisect_left(started, likely)]]
        unstarted = max(0, likely - len(self.points))
        return sum(steps) + unstarted * until, max(steps + [until] * (unstarted > 0), default=0)

    def remaining_work(self, until: int) -> Work:
        """Return the training that remains if no trial is trained beyond a step."""
        ends = bisect_right(self.rules.steps, until)
        likely, started = self.likely_count(), self.undecided_points()
        begun = [max(self.points[point].step, 0) for point in started[: bisect_left(started, likely)]]
        begun = [step for step in begun if step < until] + [0] * max(0, likely - len(self.points))
        evaluations = sum(ends - bisect_right(self.rules.steps, step) for step in begun)
        return Work(sum(until - step for step in begun), evaluations, until - min(begun, default=until))

    @property
    def decided(self) -> bool:
        """True if the result is certain."""
        started = self.undecided_points()
        return (started[0] if started else len(self.points)) >= min(self.count(), self.likely_count())

    def outcomes(self) -> list[TrialOutcome]:
        """Return the outcome of each point of the decided search, in order."""
        count = self.count()
        finish = self.finish(count)
        return [self.rules.outcome(trial, finish) for trial in self.points[:count]]

    def unrecorded(self, points: Iterable[int] | None = None) -> list[tuple[int, TrialOutcome]]:
        """Return those of these points, or of all, that have come to their end and are not recorded that far."""
        count = min(self.count(), len(self.points))
        finish, unrecorded = self.finish(self.count()), []
        for point in range(count) if points is None else points:
            if point < count:
                trial = self.points[point]
                outcome = self.rules.outcome(trial, finish)
                if self.rules.must_record(trial, outcome):
                    unrecorded.append((point, outcome))
        return unrecorded

    @property
    def short(self) -> bool:
        """True if the decided search ran out of attempts before it had its non-divergent trials."""
        count = self.count()
        return self._num_feasible(count, self.finish(count)) < self.rules.trials

    def counts(self) -> SearchCounts:
        """Return counts for display; cached until something changes."""
        if self._counts is None:
            reached = [trial.reached_at for trial in self.points if trial.reached_at is not None]
            steps = [trial.step for trial in self.points]
            self._counts = SearchCounts(
                reached=len(reached),
                earliest_goal=min(reached, default=None),
                diverging=sum(trial.diverged_at is not None and trial.recorded is None for trial in self.points),
                steps=sum(step for step in steps if step > 0),
                front=max(steps, default=None),
            )
        return self._counts
