"""The order in which a search's needs are trained: together and promising ones first when racing, else one by one.

Pure. Order and pace never change the result (see ``search_state``), only what it costs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator

from batchscale.protocol.search_state import Need, SearchState
from batchscale.spec import StopRule

FIRST_ROUND = 64
"""A race's first round trains a 64th of the step budget; each later one doubles what was trained."""


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


def order_needs(state: SearchState, busy: Container[int]) -> Iterator[Need]:
    """The needs that may be trained now, best first; ``busy`` holds the points being trained."""
    needs = state.needs()
    if state.rules.stop is not StopRule.RACE:
        # a started trial is finished before another starts, so that few states are held at once
        yield from sorted(
            (need for need in needs if need.point not in busy),
            key=lambda need: (need.point >= len(state.points) or state.points[need.point].step < 0, need.point),
        )
        return
    yield from _order_race(state, needs, busy)


def _order_race(state: SearchState, needs: list[Need], busy: Container[int]) -> Iterator[Need]:
    """Those behind catch up with the front; only when all have, the front moves to the next round's end.

    The front is that of trials still needed: those added to a finished race start with short rounds again.
    """

    def known_step(need: Need) -> int:
        return state.points[need.point].step if need.point < len(state.points) else -1

    def promise(need: Need) -> tuple[float, int]:
        return (state.points[need.point].best if known_step(need) >= 0 else float("-inf"), need.point)

    ends = round_ends(state.rules.steps)
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
