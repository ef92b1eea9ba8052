"""How sure a curve and its boundaries are: intervals for every point, for B_crit and for the ends of the regimes.

Points: the confidence distribution of ``tail``. Boundaries: the curve is drawn again many times, each study moved by
an error such as its own tail makes, and the boundary is found on every drawn curve. Deterministic under a seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.regimes import (
    DEFAULT_THRESHOLDS,
    Baseline,
    Thresholds,
    baseline_examples,
    max_useful_batch_size,
    perfect_scaling_end,
)
from batchscale.analysis.scaling import Family, fit_many
from batchscale.analysis.tail import Finishers, draw_noise, draw_steps, pool_exponents
from batchscale.errors import AnalysisError

ONE_FINISHER = "only one trial reached the goal, so nothing says how far a fresh search would land from it"
FEW_FINISHERS = "too few trials reached the goal to bound a fresh search from above"
FAR = 100  # an upper end beyond so many times the steps is no end
TOO_FEW_INTERVALS = "fewer than half of the batch sizes have two trials that reached the goal"


@dataclass(frozen=True)
class Resampling:
    """Share of fresh searches that an interval should cover, how many curves are drawn, and the seed."""

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
class BoundaryIntervals:
    """Intervals of the boundaries of a curve."""

    b_crit: Interval
    perfect_scaling_end: Interval
    max_useful_batch_size: Interval


def point_intervals(points: Sequence[StudyPoint], resampling: Resampling = DEFAULT_RESAMPLING) -> list[Interval]:
    """An interval for the steps to result of a fresh search of the same size, for every point of a curve."""
    rng = np.random.default_rng(resampling.seed)
    weights = pool_exponents([point.finishers for point in points])
    return [_point_interval(point, weights, resampling, rng) for point in points]


def draw_curves(points: Sequence[StudyPoint], resampling: Resampling = DEFAULT_RESAMPLING) -> Array:
    """Curves as fresh searches would have measured them: one row per draw, one column per point.

    A study with a single finisher borrows, draw by draw, the error of another study of the curve.

    Raises:
        AnalysisError: fewer than half of the studies have two finishers.
    """
    usable = [i for i, point in enumerate(points) if point.finishers.has_interval]
    if 2 * len(usable) < len(points) or not usable:
        raise AnalysisError(f"No interval for the boundaries: {TOO_FEW_INTERVALS}.")
    rng = np.random.default_rng(resampling.seed + 1)
    weights = pool_exponents([point.finishers for point in points])
    noise = np.empty((resampling.draws, len(points)))
    for i in usable:
        noise[:, i] = draw_noise(points[i].finishers, weights, resampling.draws, rng)
    for i in set(range(len(points))) - set(usable):
        noise[:, i] = noise[np.arange(resampling.draws), rng.choice(usable, size=resampling.draws)]
    steps = np.array([float(point.steps) for point in points])
    grid = np.array([float(point.spacing) for point in points])
    moved = steps * np.exp(-noise) + (rng.random(noise.shape) - 0.5) * grid
    return np.asarray(np.maximum(moved, steps * 1e-3))


def boundary_intervals(
    points: Sequence[StudyPoint],
    family: Family | None,
    *,
    baseline: Baseline = Baseline.ROBUST,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    resampling: Resampling = DEFAULT_RESAMPLING,
) -> BoundaryIntervals:
    """Intervals for B_crit (of the family that was chosen; none without a fit) and for the ends of the regimes."""
    try:
        curves = draw_curves(points, resampling)
    except AnalysisError:
        none = Interval(reason=TOO_FEW_INTERVALS)
        return BoundaryIntervals(none, none, none)
    sizes = np.array([float(point.batch_size) for point in points])
    b_crit = Interval(reason="there is no scaling fit")
    if family is not None:
        b_crit = critical_interval(fit_many(np.log(sizes), np.log(curves), family), sizes, resampling)
    ends = [
        perfect_scaling_end(sizes, row, baseline_examples(sizes, row, baseline, thresholds.perfect), thresholds.perfect)
        for row in curves
    ]
    useful = [max_useful_batch_size(sizes, row, thresholds)[0] for row in curves]
    return BoundaryIntervals(b_crit, _measured(ends, resampling), _measured(useful, resampling))


def critical_interval(log_b: Array, sizes: Array, resampling: Resampling) -> Interval:
    """The interval of drawn critical batch sizes; an end far outside the measured sizes is none."""
    low, high = (float(end) for end in np.exp(np.quantile(log_b, resampling.ends)))
    beyond = high > 20 * sizes[-1]
    below = low < sizes[0] / 20
    reason = "the points cannot tell how large" if beyond else "the points cannot tell how small" if below else None
    return Interval(None if below else low, None if beyond else high, reason)


def _point_interval(point: StudyPoint, weights: Array, resampling: Resampling, rng: np.random.Generator) -> Interval:
    if not point.finishers.has_interval:
        return Interval(reason=ONE_FINISHER)
    drawn = draw_steps(point.finishers, weights, resampling.draws, rng)
    low, high = (float(end) for end in np.quantile(drawn, resampling.ends))
    # Between the measurement before and the winning one anything may have happened.
    low = min(low, float(max(point.steps - point.spacing, 1)))
    if high > FAR * point.steps:
        return Interval(max(math.floor(low), 1), None, FEW_FINISHERS)
    return Interval(max(math.floor(low), 1), math.ceil(max(high, point.steps)))


def _measured(values: Sequence[float], resampling: Resampling) -> Interval:
    low, high = np.quantile(np.asarray(values), resampling.ends, method="inverted_cdf")
    return Interval(float(low), float(high))
