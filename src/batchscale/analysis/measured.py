"""Facts that the points of a curve show by themselves, without any law: cheap sizes, and steps that rose or fell."""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.intervals import Estimate
from batchscale.analysis.summary import CurveSummary

CLEAR_BUMP = 1.1  # a size that needs more steps than the one before, by this factor, is doubtful


@dataclass(frozen=True)
class StepChange:
    """The steps at a larger size over those at a smaller one, as measured."""

    smaller: int
    larger: int
    ratio: float


def examples_ratio(summary: CurveSummary, batch_size: int, reference: int) -> float:
    """Return the examples to result at a measured size over those at another, as measured."""
    steps = steps_by_size(summary)
    return batch_size * steps[batch_size] / (reference * steps[reference])


def steps_by_size(summary: CurveSummary) -> dict[int, float]:
    """Return the measured steps by growing batch size."""
    return {point.batch_size: float(point.steps.value or 0.0) for point in summary.points}


def cheap_from(summary: CurveSummary, reference: int) -> int:
    """Return the smallest size from which on, up to the reference, every size costs about as few examples.

    About as few: within the tolerance of perfect scaling. The size before it costs more.
    """
    lowest = reference
    for size in reversed([size for size in steps_by_size(summary) if size < reference]):
        if examples_ratio(summary, size, reference) > 1 + summary.regimes.thresholds.perfect:
            break
        lowest = size
    return lowest


def final_rise(summary: CurveSummary) -> StepChange | None:
    """Return the rise of steps from the size of fewest to the largest size; None if the largest needed the fewest."""
    steps = steps_by_size(summary)
    fewest = min(steps.values())
    fastest = max(size for size, value in steps.items() if value == fewest)
    if fastest == summary.largest:
        return None
    return StepChange(fastest, summary.largest, steps[summary.largest] / fewest)


def may_be_noise(summary: CurveSummary, change: StepChange) -> bool:
    """True if the intervals of the steps at both sizes overlap."""
    smaller, larger = summary.point(change.smaller).steps, summary.point(change.larger).steps
    if smaller.low is None or smaller.high is None or larger.low is None or larger.high is None:
        return False
    return larger.low <= smaller.high and smaller.low <= larger.high


def worst_bump(summary: CurveSummary) -> StepChange | None:
    """Return the size that needed most steps over the size before, of those whose larger sizes needed fewer again."""
    steps = steps_by_size(summary)
    changes = [
        StepChange(smaller, larger, steps[larger] / steps[smaller])
        for smaller, larger in itertools.pairwise(steps)
        if any(steps[size] <= steps[smaller] for size in steps if size > larger)
    ]
    worst = max(changes, key=lambda change: change.ratio, default=None)
    return worst if worst is not None and worst.ratio >= CLEAR_BUMP else None


def fall_per_doubling(summary: CurveSummary) -> float:
    """Return the share of steps that twice the batch saves, by a line through all points in logarithms."""
    steps = steps_by_size(summary)
    slope = np.polyfit(np.log(list(steps)), np.log(list(steps.values())), 1)[0]
    return float(1 - 2**slope)


def last_change(summary: CurveSummary) -> StepChange:
    """Return the change of steps to the largest size, from the measured size that is nearest to its half."""
    steps = steps_by_size(summary)
    largest = summary.largest
    smaller = min((size for size in steps if size < largest), key=lambda size: abs(math.log(2 * size / largest)))
    return StepChange(smaller, largest, steps[largest] / steps[smaller])


def allowed_fall(summary: CurveSummary, change: StepChange) -> Estimate:
    """Return by what share steps fall between two sizes in the laws that agree with the points: the range over them."""
    if summary.confidence_set is None:
        return Estimate()
    logs = summary.confidence_set.log_steps(np.array([change.smaller, change.larger], dtype=np.float64))
    falls = -np.expm1(logs[:, 1] - logs[:, 0])
    return Estimate(None, float(falls.min()), float(falls.max()))
