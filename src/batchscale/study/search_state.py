"""The decision core of the protocol: which trials a search needs, how far, and when its result is certain.

Pure: it knows numbers, not processes, files or clocks. The result of a search is DEFINED here from the outcomes of
its trials alone, so that records never depend on which trial happened to be trained first:

* Point i of the search (0, 1, …) has a first step that reaches the goal, g(i), and a step where it diverges, d(i);
  both may be infinite. T is the step budget, F the number of finishers.
* S(n), the finish over the first n points, is the F-th smallest g (points of other searches of the study
  included), at most T, where the stop rule is a race; each rule says what it is (see ``stop_rules``), often just T.
* Point i ends at S(n), or where the rule ends trials at the goal at g(i) if that comes first; it is INFEASIBLE if d(i)
  is not after its end.
* The search is the smallest n with the wanted number of points that are not INFEASIBLE (nor failed).

S(n) only falls with n, so a point that counts goes on counting and "smallest n" is well defined. While trials run,
bounds on S(n) from both sides say which n are certainly too small and how far a trial is certainly needed.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, repeat

from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Ending, Need
from batchscale.study.open_points import OpenPoints
from batchscale.study.ranking import Rank, Ranking
from batchscale.study.search_rules import SearchRules
from batchscale.study.tally import Tally, tally_points


class SearchState:
    """What is known of the points of one search, and what follows from it.

    Whoever changes what is known of a point says so with `changed`; then nothing but that point is looked at again.
    """

    def __init__(self, rules: SearchRules, known: Sequence[Knowledge] = ()) -> None:
        self.rules = rules
        self.points: list[Knowledge] = list(known)
        self._ranking: Ranking | None = None  # None: to be made from all points
        self._recorded = 0
        self._open = OpenPoints(self.points)
        self._count: int | None = None
        self._count_before = 0  # what it was before the last news: it seldom changes
        self._likely: int | None = None
        self._until: int | None = None
        self._tally: Tally | None = None

    def get(self, point: int) -> Knowledge:
        """What is known of a point; a point never heard of is known from now on."""
        new = range(len(self.points), point + 1)
        self.points.extend(Knowledge() for _ in new)
        if self._ranking is not None:
            for one in new:
                self._file(self._ranking, one)
        return self.points[point]

    def step_of(self, point: int) -> int:
        """The last measured step of a point; -1 if nothing is known of it."""
        return self.points[point].step if point < len(self.points) else -1

    def put(self, point: int, known: Knowledge) -> None:
        """Replace what is known of a point."""
        self.get(point)
        self.points[point] = known
        self.changed()

    def cut(self, count: int) -> None:
        """Forget all points from this one on."""
        del self.points[count:]
        self.changed()

    def changed(self, point: int | None = None) -> None:
        """Something was learned of a point; of none in particular: of any, or the rules are others."""
        self._count = self._likely = self._until = self._tally = None
        if point is None:
            self._ranking = None
        elif self._ranking is not None:
            self._file(self._ranking, point)

    # --- where points stand ----------------------------------------------------------------------------------

    def _ranked(self) -> Ranking:
        if self._ranking is None:
            self._ranking, self._recorded = Ranking(), 0
            self._open.forget()
            for point in range(len(self.points)):
                self._file(self._ranking, point)
        return self._ranking

    def _file(self, ranking: Ranking, point: int) -> None:
        known, goal, earliest = self.points[point], None, None
        if self.rules.rule.looks_at_goals:
            goal, earliest = known.reached_at, self.rules.earliest_goal(known)
        ranking.file(point, Rank(self.rules.lost_from(known), goal, earliest))
        if known.recorded is not None:
            self._recorded = max(self._recorded, point + 1)
        self._open.file(point, self.rules)

    # --- the finish ------------------------------------------------------------------------------------------

    def finish(self, count: int) -> int:
        """An upper bound of S(count), exact once every point is known up to it."""
        return self._finish(self._ranked().goals(count))

    def finish_at_least(self, count: int) -> int:
        """A lower bound of S(count): a point that is not over may reach the goal at its next evaluation."""
        unknown = repeat(self.rules.steps[0], max(0, count - len(self.points)))
        return self._finish(merge(unknown, self._ranked().earliest_goals(count)))

    def _finish(self, goal_steps: Iterable[int]) -> int:
        """What the rule makes of the goal steps; they are only worked out if it looks at them."""
        rules = self.rules
        wanted = merge(goal_steps, sorted(rules.others_reached)) if rules.rule.looks_at_goals else ()
        return rules.rule.finish(wanted, rules.train_steps, rules.finishers)

    # --- how many points -------------------------------------------------------------------------------------

    def count(self) -> int:
        """The smallest n that may still be the search: certain once `needs` is empty; at most ``max_attempts``.

        Points that are recorded belong to the search, also when it now asks for less.
        """
        if self._count is None:
            self._count = self._count_before = self._find_count()
        return self._count

    def _find_count(self) -> int:
        self._ranked()
        least = max(min(self.rules.trials, self.rules.max_attempts), self._recorded)
        most = max(self.rules.max_attempts, least)
        if least == most or self._is_enough(least):
            return least
        # a point that counts goes on counting when n grows, so the n that are enough are all those from some n on
        before = self._count_before
        if least < before <= most and self._is_enough(before) and not self._is_enough(before - 1):
            return before
        more = 1
        while least + more < most and not self._is_enough(least + more):
            more *= 2
        return bisect_left(range(most), True, least + more // 2, min(least + more, most), key=self._is_enough)

    def _is_enough(self, count: int) -> bool:
        return self._feasible(count, self.finish_at_least(count)) >= self.rules.trials

    def likely_count(self) -> int:
        """The n that replaces every certain divergence at once: later points are started before they must be."""
        if self._likely is None:
            count = self.count()
            certain = count - self._feasible(count, self._finish(self._earliest_of_started(count)))
            self._likely = min(max(count, self.rules.trials + certain), self.rules.max_attempts)
        return self._likely

    def _earliest_of_started(self, count: int) -> Iterator[int]:
        """The steps at which the first points may reach the goal, without those that were only just begun.

        Such a point may reach it at once, as far as is known: then nothing would be certain again and again.
        """
        return self._ranked().earliest_goals(count, lambda point: self.points[point].step >= 0)

    def _feasible(self, count: int, finish: int) -> int:
        return count - self._ranked().num_lost(count, finish)

    # --- what to train, and the result -----------------------------------------------------------------------

    @property
    def until(self) -> int:
        """How far every point must be known that is needed."""
        if self._until is None:
            self._until = self.finish(self.count())
        return self._until

    def is_needed(self, point: int) -> bool:
        """Whether a point must be known further before the result is certain."""
        return point < self.likely_count() and (point >= len(self.points) or self.is_open(point))

    def is_open(self, point: int) -> bool:
        """Whether a point that is known of must be known further, if the search has it."""
        return self.rules.is_open(self.points[point], self.until)

    def open_points(self) -> list[int]:
        """The points that are known of and must be known further, growing; a view that must not be changed."""
        return self._open.until(self.until, self.rules)

    def needs(self) -> list[Need]:
        """Every point that must be known further before the result is certain; points to be started included.

        Points beyond `count` are likely needed (see `likely_count`) and come last.
        """
        until, likely = self.until, self.likely_count()
        known = self.open_points()
        known = known[: bisect_left(known, likely)]
        return [Need(point, until) for point in chain(known, range(len(self.points), likely))]

    def steps_left(self) -> tuple[int, int]:
        """How many steps all needs take, and the most that one of them does."""
        until, likely, known = self.until, self.likely_count(), self.open_points()
        lefts = [until - max(self.points[point].step, 0) for point in known[: bisect_left(known, likely)]]
        fresh = max(0, likely - len(self.points))
        return sum(lefts) + fresh * until, max(lefts + [until] * (fresh > 0), default=0)

    def tally(self) -> Tally:
        """What has become of the points that are known of; counted again when something changed."""
        if self._tally is None:
            self._tally = tally_points(self.points)
        return self._tally

    def order(self, busy: Container[int]) -> Iterator[Need]:
        """The needs that may be trained now, best first; ``busy`` holds the points being trained."""
        return self.rules.rule.order(self.needs(), self.points, self.rules.steps, busy)

    @property
    def decided(self) -> bool:
        """Whether the result is certain."""
        known = self.open_points()
        return (known[0] if known else len(self.points)) >= min(self.count(), self.likely_count())

    def endings(self) -> list[Ending]:
        """How each point of the decided search ends, in order; its length is the number of trials."""
        count = self.count()
        finish = self.finish(count)
        return [self.rules.ending(point, finish) for point in self.points[:count]]

    def unrecorded(self, points: Iterable[int] | None = None) -> list[tuple[int, Ending]]:
        """Those of these points, or of all, that have come to their end and are not recorded that far."""
        count = min(self.count(), len(self.points))
        finish, found = self.finish(self.count()), []
        for index in range(count) if points is None else points:
            if index < count:
                point = self.points[index]
                ending = self.rules.ending(point, finish)
                if self.rules.is_due(point, ending):
                    found.append((index, ending))
        return found

    @property
    def short(self) -> bool:
        """Whether the decided search ran out of attempts before it had its non-divergent trials."""
        count = self.count()
        return self._feasible(count, self.finish(count)) < self.rules.trials
