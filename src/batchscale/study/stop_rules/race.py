"""``race``: trials end once enough of them have reached the goal. Loses nothing of the steps to result.

Trials are trained in rounds, the promising ones first, so that the race is over early.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import final

from batchscale.study.stop_rules.rule import Requeue, Rule
from batchscale.study.trial import UNSTARTED, TrialRequest, TrialSummary

FIRST_ROUND = 64
"""A race's first round trains a 64th of the step budget; each later one doubles what was trained."""


@final
class RaceRule(Rule):
    """All trials of a search against each other."""

    ends_at_goal = True
    ends_together = True
    uses_finishers = True
    cut_reason = "raced"

    def finish(self, goal_steps: Iterable[int], train_steps: int, finishers: int) -> int:
        """Return the step at which the last of the required finishers reaches the goal, at most the budget."""
        return min(next(islice(goal_steps, finishers - 1, None), train_steps), train_steps)

    def order(
        self,
        requests: Sequence[TrialRequest],
        points: Sequence[TrialSummary],
        steps: tuple[int, ...],
        running: Container[int],
    ) -> Iterator[TrialRequest]:
        """Yield trials behind the front first; only when all have caught up, the front moves to the next round's end.

        The front is that of undecided trials: those added to a finished race start with short rounds again.
        """

        def summary(request: TrialRequest) -> TrialSummary:
            return points[request.point] if request.point < len(points) else UNSTARTED

        def rank(request: TrialRequest) -> tuple[float, int]:
            return self.rank(request.point, summary(request))

        ends = round_ends(steps)
        front = max((summary(request).step for request in requests), default=-1)
        front = ends[min(bisect_left(ends, front), len(ends) - 1)] if front > 0 else ends[0]
        behind = [request for request in requests if summary(request).step < min(front, request.until)]
        for request in sorted((request for request in behind if request.point not in running), key=rank):
            yield TrialRequest(request.point, min(front, request.until))
        if any(request.point not in running for request in behind):
            return
        next_end = ends[min(bisect_right(ends, front), len(ends) - 1)]
        late = {request.point for request in behind}
        ahead = [request for request in requests if request.point not in running and request.point not in late]
        for request in sorted(ahead, key=rank):
            yield TrialRequest(request.point, min(next_end, request.until))

    def rank(self, point: int, trial: TrialSummary) -> tuple[float, int]:
        """Return the best value so far as the sort key; trials without a measurement come first."""
        return (trial.best if trial.step >= 0 else float("-inf"), point)

    def requeue(self, until: int, step: int, steps: tuple[int, ...]) -> Requeue:
        """A trial at the end of the round waits for the others; one within the round continues."""
        if step == until:
            return Requeue.LATER
        begin = max((end for end in round_ends(steps) if end < until), default=0)
        return Requeue.NOW if begin <= max(step, 0) < until else Requeue.REORDER


@cache
def round_ends(steps: tuple[int, ...]) -> tuple[int, ...]:
    """Return the evaluation steps at which the trials of a race wait for each other.

    >>> round_ends((0, 100, 200, 300, 400))
    (100, 200, 400)
    """
    ends = []
    share = FIRST_ROUND
    while share >= 1:
        ends.append(steps[min(bisect_left(steps, max(1, steps[-1] / share)), len(steps) - 1)])
        share //= 2
    return tuple(sorted(set(ends)))


RULE = RaceRule()
