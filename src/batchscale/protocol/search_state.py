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

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

from batchscale.protocol.knowledge import Knowledge
from batchscale.protocol.needs import Ending, Need
from batchscale.protocol.stop_rules.rule import Rule
from batchscale.records.model import Status

NEVER = 2**62


@dataclass(frozen=True)
class SearchRules:
    """What a search must give: how many non-divergent trials, measured when, stopped by which rule.

    ``others_reached`` are the steps at which trials of the study's other searches reached the goal.
    """

    rule: Rule
    steps: tuple[int, ...]
    trials: int
    max_attempts: int
    finishers: int = 1
    others_reached: tuple[int, ...] = ()

    @property
    def train_steps(self) -> int:
        """The step budget."""
        return self.steps[-1]


class SearchState:
    """What is known of the points of one search, and what follows from it."""

    def __init__(self, rules: SearchRules, known: Sequence[Knowledge] = ()) -> None:
        self.rules = rules
        self.points: list[Knowledge] = list(known)
        self._count: int | None = None
        self._needs: list[Need] | None = None

    def get(self, point: int) -> Knowledge:
        """What is known of a point; a point never heard of is known from now on."""
        self.points.extend(Knowledge() for _ in range(point + 1 - len(self.points)))
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

    def changed(self) -> None:
        """Something was learned, or the rules are others: what follows from them is worked out anew."""
        self._count = None
        self._needs = None

    # --- the finish ------------------------------------------------------------------------------------------

    def finish(self, count: int) -> int:
        """An upper bound of S(count), exact once every point is known up to it."""
        return self._finish(
            NEVER if point.reached_at is None else point.reached_at for point in islice(self.points, count)
        )

    def finish_at_least(self, count: int) -> int:
        """A lower bound of S(count): a point that is not over may reach the goal at its next evaluation."""
        started = (self._earliest_goal(point) for point in islice(self.points, count))
        return self._finish(chain(started, repeat(self.rules.steps[0], max(0, count - len(self.points)))))

    def _finish(self, goal_steps: Iterable[int]) -> int:
        """What the rule makes of the goal steps; they are only worked out if it looks at them."""
        rules = self.rules
        return rules.rule.finish(chain(goal_steps, rules.others_reached), rules.train_steps, rules.finishers)

    def _earliest_goal(self, point: Knowledge) -> int:
        if point.reached_at is not None:
            return point.reached_at
        if point.over:
            return NEVER
        following = bisect_right(self.rules.steps, point.step)
        return self.rules.steps[following] if following < len(self.rules.steps) else NEVER

    # --- how many points -------------------------------------------------------------------------------------

    def count(self) -> int:
        """The smallest n that may still be the search: certain once `needs` is empty; at most ``max_attempts``.

        Points that are recorded belong to the search, also when it now asks for less.
        """
        if self._count is None:
            self._count = self._find_count()
        return self._count

    def _find_count(self) -> int:
        recorded = max((i + 1 for i, point in enumerate(self.points) if point.recorded is not None), default=0)
        least = max(min(self.rules.trials, self.rules.max_attempts), recorded)
        most = max(self.rules.max_attempts, least)
        if least == most or self._is_enough(least):
            return least
        # a point that counts goes on counting when n grows, so the n that are enough are all those from some n on
        more = 1
        while least + more < most and not self._is_enough(least + more):
            more *= 2
        return bisect_left(range(most), True, least + more // 2, min(least + more, most), key=self._is_enough)

    def _is_enough(self, count: int) -> bool:
        return self._feasible(count, self.finish_at_least(count)) >= self.rules.trials

    def likely_count(self) -> int:
        """The n that replaces every certain divergence at once: later points are started before they must be."""
        count = self.count()
        certain = count - self._feasible(count, self.finish_at_least(min(count, len(self.points))))
        return min(max(count, self.rules.trials + certain), self.rules.max_attempts)

    def _feasible(self, count: int, finish: int) -> int:
        lost = sum(point.failed is not None or self._diverges(point, finish) for point in self.points[:count])
        return count - lost

    def _diverges(self, point: Knowledge, finish: int) -> bool:
        if point.diverged_at is None:
            return False
        recorded = point.recorded is not None and point.recorded >= point.diverged_at  # what is recorded stays so
        return recorded or point.diverged_at <= self._end(point, finish)

    def _end(self, point: Knowledge, finish: int) -> int:
        if not self.rules.rule.ends_at_goal or point.reached_at is None:
            return finish
        return min(finish, point.reached_at)

    # --- what to train, and the result -----------------------------------------------------------------------

    def needs(self) -> list[Need]:
        """Every point that must be known further before the result is certain; points to be started included.

        Points beyond `count` are likely needed (see `likely_count`) and come last.
        """
        if self._needs is None:
            self._needs = self._find_needs()
        return self._needs

    def _find_needs(self) -> list[Need]:
        count = self.count()
        finish = self.finish(count)
        needs = []
        for index in range(self.likely_count()):
            point = self.points[index] if index < len(self.points) else Knowledge()
            until = self._end(point, finish)
            if not point.over and point.step < until:
                needs.append(Need(index, until))
        return needs

    def order(self, busy: Container[int]) -> Iterator[Need]:
        """The needs that may be trained now, best first; ``busy`` holds the points being trained."""
        return self.rules.rule.order(self.needs(), self.points, self.rules.steps, busy)

    @property
    def decided(self) -> bool:
        """Whether the result is certain."""
        count = self.count()
        return all(need.point >= count for need in self.needs())

    def endings(self) -> list[Ending]:
        """How each point of the decided search ends, in order; its length is the number of trials."""
        count = self.count()
        finish = self.finish(count)
        return [self._ending(point, finish) for point in self.points[:count]]

    def unrecorded(self) -> list[tuple[int, Ending]]:
        """The points that have come to their end and are not recorded that far."""
        return [
            (index, ending)
            for index, (point, ending) in enumerate(zip(self.points, self.endings(), strict=False))
            if (point.over or point.step >= ending.step) and not self._is_recorded(point, ending)
        ]

    def _is_recorded(self, point: Knowledge, ending: Ending) -> bool:
        if point.recorded is None or point.recorded < ending.step:
            return False
        return point.recorded_failed or point.failed is None

    def _ending(self, point: Knowledge, finish: int) -> Ending:
        if point.failed is not None:
            return Ending(Status.INCOMPLETE, max(point.step, 0), "failed")
        if self._diverges(point, finish):
            assert point.diverged_at is not None
            return Ending(Status.INFEASIBLE, point.diverged_at, "diverged")
        end = self._end(point, finish)
        rule = self.rules.rule
        if rule.ends_at_goal and point.reached_at == end:
            return Ending(Status.COMPLETE, end, "goal")
        return Ending(Status.COMPLETE, end, "budget" if end == self.rules.train_steps else rule.cut_reason)

    @property
    def short(self) -> bool:
        """Whether the decided search ran out of attempts before it had its non-divergent trials."""
        count = self.count()
        return self._feasible(count, self.finish(count)) < self.rules.trials
