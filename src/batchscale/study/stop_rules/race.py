"""``race``: trials end once enough of them have reached the goal. Loses nothing of the steps to result.

Trials are trained in rounds, the promising ones first, so that the race is over early.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import final

from batchscale.study.knowledge import UNHEARD_OF, Knowledge
from batchscale.study.needs import Need
from batchscale.study.stop_rules.rule import Rejoins, Rule

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
        """The step at which the last of the wanted finishers reaches the goal, at most the budget."""
        return min(next(islice(goal_steps, finishers - 1, None), train_steps), train_steps)

    def order(
        self, needs: Sequence[Need], points: Sequence[Knowledge], steps: tuple[int, ...], busy: Container[int]
    ) -> Iterator[Need]:
        """Those behind catch up with the front; only when all have, the front moves to the next round's end.

        The front is that of trials still needed: those added to a finished race start with short rounds again.
        """

        def known_step(need: Need) -> int:
            return points[need.point].step if need.point < len(points) else -1

        def promise(need: Need) -> tuple[float, int]:
            return self.rank(need.point, points[need.point] if need.point < len(points) else UNHEARD_OF)

        ends = round_ends(steps)
        front = max(map(known_step, needs), default=-1)
        front = ends[min(bisect_left(ends, front), len(ends) - 1)] if front > 0 else ends[0]
        behind = [need for need in needs if known_step(need) < min(front, need.until)]
        for need in sorted((need for need in behind if need.point not in busy), key=promise):
            yield Need(need.point, min(front, need.until))
        following = ends[min(bisect_right(ends, front), len(ends) - 1)]
        late = {need.point for need in behind}
        ahead = (need for need in needs if need.point not in busy and need.point not in late)
        if all(need.point in busy for need in behind):
            for need in sorted(ahead, key=promise):
                yield Need(need.point, min(following, need.until))

    def rank(self, point: int, known: Knowledge) -> tuple[float, int]:
        """The promising ones first; those that nothing is known of before them."""
        return (known.best if known.step >= 0 else float("-inf"), point)

    def rejoins(self, until: int, step: int, steps: tuple[int, ...]) -> Rejoins:
        """A trial that came to the end of the round waits for the others; one that is on its way goes on."""
        if step == until:
            return Rejoins.LATER
        begin = max((end for end in round_ends(steps) if end < until), default=0)
        return Rejoins.OFFER if begin <= max(step, 0) < until else Rejoins.UNKNOWN


@cache
def round_ends(steps: tuple[int, ...]) -> tuple[int, ...]:
    """The evaluation steps at which trials of a race wait for each other.

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
