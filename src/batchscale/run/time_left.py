"""An estimate of the time that a run still needs: from below and from above, and a figure once the two are close.

What is unknown stays unknown. A step of training and an evaluation have different costs, and the first jobs of a study
do not tell them apart. A race ends when enough trials reach the goal, and nobody knows when. A batch size may not have
been trained at all. For each the extremes are computed; as the run goes on they approach each other.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from batchscale.study.search import Work

CLOSE = 6.0
"""The estimate is made when the upper bound is at most so many times the lower one: it is their geometric mean."""

FORGET = 0.7
"""The weight of earlier jobs beside the latest one: steps become cheaper as stretches between evaluations grow."""


@dataclass(frozen=True)
class MeasuredCost:
    """The seconds that some training took."""

    seconds: float = 0.0
    steps: float = 0.0
    evaluations: float = 0.0

    def add(self, seconds: float, steps: int, evaluations: int) -> "MeasuredCost":
        """Return the cost with a further job, which counts more than those before it."""
        return MeasuredCost(
            FORGET * self.seconds + seconds, FORGET * self.steps + steps, FORGET * self.evaluations + evaluations
        )

    def bounds(self, work: Work) -> tuple[float, float]:
        """Return the least and the most seconds of some work: all of the cost was in the evaluations, or in the steps.

        >>> MeasuredCost(seconds=2.0, steps=100, evaluations=10).bounds(Work(steps=1000, evaluations=20, longest=1000))
        (4.0, 20.0)
        """
        seconds = [self.seconds / self.steps * work.steps]
        if self.evaluations:
            seconds.append(self.seconds / self.evaluations * work.evaluations)
        return min(seconds), max(seconds)


@dataclass(frozen=True)
class StudyWork:
    """An unfinished study: its least and most work, and its cost, which is None if it was not measured yet."""

    batch_size: int
    least: Work
    most: Work
    cost: MeasuredCost | None


@dataclass(frozen=True)
class TimeLeft:
    """The seconds, and the conditions under which they hold."""

    seconds: float
    assumes: tuple[str, ...] = ()


def estimate_time_left(
    studies: Sequence[StudyWork],
    workers: int,
    costs: Mapping[int, MeasuredCost],
    setup_s: float = 0.0,
    *,
    may_repeat: bool = False,
) -> TimeLeft | None:
    """Return the time that the studies need if workers share the work evenly; None while its bounds are far apart.

    Args:
        studies: The unfinished studies.
        workers: The number of workers.
        costs: The measured costs of all studies by batch size, finished ones included.
        setup_s: The time to load and compile for a study that was not started.
        may_repeat: True if a study may be searched again, which nobody knows before.

    >>> work = Work(steps=1000, evaluations=100, longest=100)
    >>> cost = MeasuredCost(seconds=1.0, steps=100, evaluations=10)
    >>> estimate_time_left([StudyWork(8, work, work, cost)], 2, {8: cost})
    TimeLeft(seconds=5.0, assumes=())
    """
    least = most = longest = 0.0
    for study in studies:
        bounds = _seconds(study, costs)
        if bounds is None:
            return None
        setup = setup_s if study.cost is None else 0.0
        least += bounds[0] + setup
        most += bounds[1] + setup
        if study.least.steps:  # a trial cannot be shared by workers
            longest = max(longest, bounds[0] * study.least.longest / study.least.steps)
    least, most = max(least / workers, longest), max(most / workers, longest)
    if most > CLOSE * least:
        return None
    conditions = ("no study is searched again",) if studies and may_repeat else ()
    return TimeLeft(math.sqrt(least * most), conditions)


def _seconds(study: StudyWork, costs: Mapping[int, MeasuredCost]) -> tuple[float, float] | None:
    """Return the least and the most seconds of a study; a step costs more at a larger batch size, an example less."""
    if study.cost is not None:
        return study.cost.bounds(study.least)[0], study.cost.bounds(study.most)[1]
    if not costs:
        return None
    nearest = min(costs, key=lambda size: abs(math.log(size / study.batch_size)))
    ratio = study.batch_size / nearest
    low, high = costs[nearest].bounds(study.least)[0], costs[nearest].bounds(study.most)[1]
    return low * min(1.0, ratio), high * max(1.0, ratio)


def finish_bounds(batch_size: int, front: int, budget: int, finishes: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the earliest and the latest step at which a race may end, from those that have ended.

    Steps do not grow with the batch size, and fall at most in proportion to it. A race is not over before its front.

    >>> finish_bounds(64, front=10, budget=10_000, finishes=[(256, 100)])
    (100, 400)
    >>> finish_bounds(64, front=10, budget=10_000, finishes=[(16, 800), (256, 100)])
    (200, 400)
    """
    low, high = float(front), float(budget)
    for size, finish in finishes:
        ratio = size / batch_size
        low, high = max(low, finish * min(1.0, ratio)), min(high, finish * max(1.0, ratio))
    low = min(max(low, front), budget)
    return round(low), round(min(max(high, low), budget))
