"""How sure the points of a curve are: an interval for the median of what fresh searches of the same size would find.

By the confidence distribution of ``tail``, deterministic under a seed. Boundaries have theirs from ``region``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.tail import Finishers, draw_steps, pool_exponents
from batchscale.errors import AnalysisError

ONE_FINISHER = "only one trial reached the goal, so nothing says how far a fresh search would land from it"
FEW_FINISHERS = "too few trials reached the goal to bound a fresh search from above"
FAR = 100  # an upper end beyond so many times the steps is no end
# One wording for every page, table and chart.
MEANING = "intervals for the median of what fresh searches of the same size would find"


@dataclass(frozen=True)
class Resampling:
    """In what share of cases an interval should hold the truth, how many draws make a point's interval, the seed."""

    level: float = 0.9
    draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise AnalysisError(f"The level of an interval is a share between 0 and 1. Found {self.level:g}.")
        if not 100 <= self.draws <= 100_000:
            raise AnalysisError(f"The number of resamples is between 100 and 100000. Found {self.draws}.")

    @property
    def ends(self) -> tuple[float, float]:
        """The quantiles at both ends."""
        return (1 - self.level) / 2, (1 + self.level) / 2


DEFAULT_RESAMPLING = Resampling()


@dataclass(frozen=True)
class StudyPoint:
    """One measured point of a curve and the trials behind it.

    ``spacing`` is the number of steps between the winning measurement and the one before: the goal was reached
    somewhere between the two, and no interval may pretend to know better.
    """

    batch_size: int
    steps: int
    finishers: Finishers
    spacing: int = 0


@dataclass(frozen=True)
class Interval:
    """Low and high end; None where there is none, and ``reason`` says why."""

    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Estimate:
    """A value and the ends of its interval; None at an end without a bound, or where there is no value."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """True if at least one end is bounded."""
        return self.low is not None or self.high is not None


def with_interval(value: float | None, low: float | None, high: float | None) -> Estimate:
    """Return an estimate whose interval is widened to include its value.

    >>> with_interval(3.0, 1.0, 2.0)
    Estimate(value=3.0, low=1.0, high=3.0)
    """
    if value is None:
        return Estimate(None, low, high)
    return Estimate(value, None if low is None else min(low, value), None if high is None else max(high, value))


def point_intervals(points: Sequence[StudyPoint], resampling: Resampling = DEFAULT_RESAMPLING) -> list[Interval]:
    """An interval for the median steps to result of fresh searches of the same size, for every point of a curve."""
    rng = np.random.default_rng(resampling.seed)
    weights = pool_exponents([point.finishers for point in points])
    return [_point_interval(point, weights, resampling, rng) for point in points]


def _point_interval(point: StudyPoint, weights: Array, resampling: Resampling, rng: np.random.Generator) -> Interval:
    if not point.finishers.has_interval:
        return Interval(reason=ONE_FINISHER)
    drawn = draw_steps(point.finishers, weights, resampling.draws, rng)
    # Order statistics, not values between two: machines whose vector instructions round otherwise agree on them.
    low, high = (float(end) for end in np.quantile(drawn, resampling.ends, method="inverted_cdf"))
    # Between the measurement before and the winning one anything may have happened.
    low = min(low, float(max(point.steps - point.spacing, 1)))
    if high > FAR * point.steps:
        return Interval(max(math.floor(low), 1), None, FEW_FINISHERS)
    return Interval(max(math.floor(low), 1), math.ceil(max(high, point.steps)))
