"""A curve for planning: at each batch size the steps to the goal, their interval, and the success rate of runs.

Holds the values and the interval of a few runs. ``read_curve`` reads curves from files and records.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from batchscale.errors import PlanningError

LEVEL = 0.9  # of every interval in a plan, as in the analysis


@dataclass(frozen=True)
class CurvePoint:
    """Steps to the goal with one batch size and one choice of metaparameters.

    Attributes:
        batch_size: Examples per step over all devices.
        steps: The mean over runs that reach the goal, or a study's steps to result.
        low: Lower end of the interval of ``steps``; None if it is not known.
        high: Upper end likewise.
        attempts: The number of runs; None if not known, and then every run is expected to succeed.
        successes: The number of them that reached the goal.
        give_up: The step at which a run that has not reached the goal is given up.
        metaparameters: As text, such as ``learning_rate 0.001``; empty if not known.
        interpolated: True if it lies between measured batch sizes.
        predicted: True if it follows from a law, not from runs of this workload.
    """

    batch_size: int
    steps: float
    low: float | None = None
    high: float | None = None
    attempts: int | None = None
    successes: int | None = None
    give_up: float | None = None
    metaparameters: str = ""
    interpolated: bool = False
    predicted: bool = False

    @property
    def source(self) -> str:
        """Return the origin of the steps: measured, interpolated or predicted."""
        return "predicted" if self.predicted else "interpolated" if self.interpolated else "measured"

    def __post_init__(self) -> None:
        if not (self.batch_size >= 1 and math.isfinite(self.steps) and self.steps > 0):
            raise PlanningError(
                f"A point of a curve has a batch size of at least 1 and positive steps. Found batch size "
                f"{self.batch_size} and {self.steps:g} steps."
            )
        for end, sign in ((self.low, 1), (self.high, -1)):
            if end is not None and sign * (self.steps - end) < -1e-9 * self.steps:
                raise PlanningError(
                    f"An interval must contain its middle. Found {self.low} to {self.high} around {self.steps:g} steps "
                    f"at batch size {self.batch_size}."
                )
        if (self.attempts is None) != (self.successes is None):
            raise PlanningError(f"Attempts and successes come together. Found one at batch size {self.batch_size}.")
        if self.attempts is not None and self.successes is not None and not 1 <= self.successes <= self.attempts:
            raise PlanningError(
                f"Successes are at least 1 and at most the attempts. Found {self.successes} of {self.attempts} at "
                f"batch size {self.batch_size}."
            )


@dataclass(frozen=True)
class PlanCurve:
    """The points of a workload; ``unreached`` has a sentence for each batch size that never reached the goal.

    ``tokens_per_example`` is what texts are written with; None where it is unknown.
    """

    points: tuple[CurvePoint, ...]
    workload: str | None = None
    goal: str | None = None
    unreached: tuple[str, ...] = ()
    tokens_per_example: int | None = None

    def __post_init__(self) -> None:
        if not self.points:
            tried = f" ({'; '.join(self.unreached[:5])})" if self.unreached else ""
            raise PlanningError(
                f"A plan needs a batch size at which the goal is reached. Found none{tried}. Train longer, search "
                "better metaparameters, or set an easier goal."
            )


def mean_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the mean of positive values and the 90 % interval of the mean: Student's, of the logarithms.

    Two values are the fewest that have one. The mean itself always lies inside.

    >>> mean_interval([100.0])
    (100.0, None, None)
    >>> [round(number, 1) for number in mean_interval([90.0, 100.0, 110.0])]
    [100.0, 84.1, 118.0]
    """
    numbers = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean())
    if len(numbers) < 2:
        return mean, None, None
    logs = np.log(numbers)
    width = half_width_factor(len(numbers)) * float(logs.std(ddof=1))
    centre = float(logs.mean())
    return mean, min(mean, math.exp(centre - width)), max(mean, math.exp(centre + width))


def half_width_factor(count: int) -> float:
    """Return the half width of the interval of a mean of so many values, in standard deviations of a value."""
    from scipy.special import stdtrit  # only a plan needs SciPy

    return float(stdtrit(count - 1, (1 + LEVEL) / 2)) / math.sqrt(count)


def rate_interval(successes: int, attempts: int) -> tuple[float, float]:
    """Return the 90 % interval of a success rate (Jeffreys): Beta(s + 1/2, n - s + 1/2), closed at 1 if all succeed.

    >>> [round(end, 2) for end in rate_interval(2, 3)]
    [0.24, 0.94]
    """
    from scipy.special import betaincinv

    failures = attempts - successes
    low = float(betaincinv(successes + 0.5, failures + 0.5, (1 - LEVEL) / 2))
    high = 1.0 if failures == 0 else float(betaincinv(successes + 0.5, failures + 0.5, (1 + LEVEL) / 2))
    rate = successes / attempts
    return min(low, rate), max(high, rate)


def add_batch_sizes(curve: PlanCurve, batch_sizes: Sequence[int]) -> PlanCurve:
    """Return the curve with further batch sizes, read off the straight lines between its points in logarithms.

    Raises:
        PlanningError: one lies outside the measured batch sizes, or the curve has several points at a batch size.
    """
    points_by_size = {point.batch_size: point for point in curve.points}
    if len(points_by_size) < len(curve.points):
        raise PlanningError(
            "Further batch sizes need a curve with one point per batch size. Found several choices of "
            "metaparameters at a batch size; leave --batch-sizes out."
        )
    sizes = sorted(points_by_size)
    new_sizes = sorted({size for size in batch_sizes if size not in points_by_size})
    outside = [size for size in new_sizes if not sizes[0] < size < sizes[-1]]
    if outside:
        raise PlanningError(
            f"Steps are read off between measured batch sizes, never beyond them. Found {outside[0]} outside "
            f"{sizes[0]} to {sizes[-1]}; measure it."
        )
    between = [_between(points_by_size, sizes, size) for size in new_sizes]
    points = sorted((*curve.points, *between), key=lambda point: point.batch_size)
    return replace(curve, points=tuple(points))


def _between(points: dict[int, CurvePoint], sizes: Sequence[int], size: int) -> CurvePoint:
    below = points[max(s for s in sizes if s < size)]
    above = points[min(s for s in sizes if s > size)]
    share = math.log(size / below.batch_size) / math.log(above.batch_size / below.batch_size)

    def mix(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else math.exp((1 - share) * math.log(a) + share * math.log(b))

    steps = mix(below.steps, above.steps)
    assert steps is not None
    ends = mix(below.low, above.low), mix(below.high, above.high)
    return CurvePoint(size, steps, *ends, interpolated=True, predicted=below.predicted or above.predicted)
