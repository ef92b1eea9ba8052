"""Estimates with intervals, and the intervals of a curve's points, from the trials behind them.

The quantity is the median θ of the minimum over N fresh trials in the same space. The measured minimum t(1) is
median-unbiased for it, by definition. Above t(1) no model is needed: P(t(i) < θ) is binomial, so the runners-up are
confidence bounds whatever the distribution. Below t(1) there is no data, and the plain bootstrap puts nothing there,
which is why it under-covers. There a tail model is used: log steps near their lower end follow a three-parameter
Weibull law, seen through its k lowest values of N (type-II censoring), so that trials that never reach the goal, and
raced trials that were stopped, only need to be counted. docs/analysis.md has the formulas and the coverage.

Intervals of boundaries come from ``confidence_set``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.quantiles import binomial_levels, gamma_levels, gamma_quantiles
from batchscale.errors import AnalysisError

LOWEST = 8  # order statistics that the tail is fitted to; more would need the law to hold further in
FEWEST = 2  # with one finisher there is no spacing, hence no interval

# Tail exponents: the k-th lowest lies above the end as (k/N)^(1/exponent). A quadratic bowl in d metaparameters has
# d/2, any positive density at the end has 1, light tails have large ones.
EXPONENTS = np.geomspace(0.35, 8.0, 10)

_OFFSETS = np.linspace(-7.0, 5.0, 61)  # log distance of the lower end from t(1), in units of t(k) - t(1)
_FARTHEST = 20.0  # two finishers may give any width, which must stay a number
_QUANTILES = 4096
_BETWEEN = np.linspace(0.0, 1.0, 11)[:-1]

ONE_FINISHER = "only one trial reached the goal, so nothing says how far a fresh search would land from it"
FEW_FINISHERS = "too few trials reached the goal to bound a fresh search from above"
FAR = 100  # an upper end beyond this many times the steps counts as none


@dataclass(frozen=True)
class Resampling:
    """The share of cases in which an interval should include the truth, the draws for a point's interval, the seed."""

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
class Finishers:
    """The steps of a study's trials that reached the goal, and the number of trials of the search."""

    steps: Array
    trials: int

    @property
    def lowest(self) -> Array:
        """Logarithms of the lowest steps, growing: the tail is fitted to these."""
        return np.sort(np.log(self.steps))[:LOWEST]

    @property
    def has_interval(self) -> bool:
        """True if there are enough of them for an interval."""
        return len(self.steps) >= FEWEST


@dataclass(frozen=True)
class StudyPoint:
    """One measured point of a curve and the trials behind it.

    ``spacing`` is the number of steps between the winning measurement and the one before: the goal was reached
    somewhere between the two, and an interval includes both.
    """

    batch_size: int
    steps: int
    finishers: Finishers
    spacing: int = 0


@dataclass(frozen=True)
class Interval:
    """Low and high end; None where there is none, for the given ``reason``."""

    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Estimate:
    """A value and the ends of its interval; None at an end without a bound, or where there is no value."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    def includes(self, value: float | None) -> bool:
        """Return True if a value lies in the interval; an end that is None bounds nothing.

        >>> Estimate(3.0, 2.0, None).includes(8.0), Estimate(3.0, 2.0, 4.0).includes(1.0)
        (True, False)
        """
        return value is not None and (self.low or 0.0) <= value <= (math.inf if self.high is None else self.high)

    @property
    def has_interval(self) -> bool:
        """True if at least one end is bounded."""
        return self.low is not None or self.high is not None


def point_intervals(points: Sequence[StudyPoint], resampling: Resampling = DEFAULT_RESAMPLING) -> list[Interval]:
    """Return intervals for the median steps to result of fresh searches of the same size, one per point."""
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


def pool_exponents(studies: Sequence[Finishers]) -> Array:
    """Return the weights of ``EXPONENTS`` by all studies of a curve together (they search the same kind of space)."""
    score = np.zeros(len(EXPONENTS))
    for study in studies:
        logs = study.lowest
        if len(logs) > FEWEST and logs[-1] > logs[0]:
            _, cells = _grid(logs, study.trials)
            top = cells.max()
            score += top + np.log(np.exp(cells - top).sum(axis=1))
    weights = np.exp(score - score.max())
    return np.asarray(weights / weights.sum())


def draw_steps(study: Finishers, weights: Array, draws: int, rng: np.random.Generator) -> Array:
    """Return draws of θ from its confidence distribution; their median is the study's steps to result.

    Args:
        study: At least two finishers.
        weights: Of ``EXPONENTS``, by ``pool_exponents``.
        draws: The number of draws.
        rng: The source of randomness.
    """
    logs, trials = study.lowest, study.trials
    count = len(logs)
    levels, places = order_levels(trials, count)
    share = (np.arange(draws) + rng.random()) / draws  # evenly: quantiles are all that draws are for
    out = np.interp(share, levels, np.interp(places, np.arange(count), logs))
    model = _tail_draws(logs, trials, weights, 4 * draws, rng)
    below, beyond = np.sort(model[model < logs[0]]), np.sort(model[model > logs[-1]])
    _replace(out, share < levels[0], share / levels[0], below)
    _replace(out, share > levels[-1], (share - levels[-1]) / (1 - levels[-1]), beyond)
    return np.exp(np.clip(out, logs[0] - _FARTHEST, logs[0] + _FARTHEST))


def noise_variance(study: Finishers, weights: Array) -> float:
    """Return the mean square of log t(1) - log θ, unbiased over studies.

    For one study, ``draw_steps`` must allow for the unknown spread of its tail. A boundary is fitted to many
    studies, where these errors average out. Under x(i) = a + s Λ(i)^(1/c) with Rényi's Λ, the spread
    s² = (x(k) - x(1))² / E[(Λ(k)^(1/c) - Λ(1)^(1/c))²] is unbiased, and Λ(1) is exponential with mean 1/N, θ standing
    at its median: the mean square is s² N^(-2/c) (Γ(1+2/c) - 2 m Γ(1+1/c) + m²) with m = (ln 2)^(1/c).
    """
    logs, power = study.lowest, 1 / EXPONENTS
    spread = (logs[-1] - logs[0]) ** 2 / _mean_square_ranges(study.trials, len(logs))
    middle = math.log(2) ** power
    once, twice = (np.array([math.gamma(1 + times * p) for p in power]) for times in (1, 2))
    squares = spread * float(study.trials) ** (-2 * power) * (twice - 2 * middle * once + middle**2)
    return float((weights * squares).sum())


@lru_cache(maxsize=256)
def order_levels(trials: int, count: int) -> tuple[Array, Array]:
    """Return confidences that θ lies below the order statistics t(1)…t(count) and between them, and their places.

    P(θ <= t(i)) = P(Binomial(N, q) < i) with (1 - q)^N = 1/2. Between t(i) and t(i+1) the Poisson limit with locally
    even spacing gives P(Γ_i + λE > ln 2) for the place i + λ (the interpolation of Hettmansperger and Sheather).
    """
    chance = -math.expm1(-math.log(2) / trials)
    exact = binomial_levels(trials, chance, count)
    grid = np.linspace(0.0, math.log(2), 201)
    middle = (grid[1:] + grid[:-1]) / 2
    levels, places = [], []
    for i in range(count):
        weight = np.diff(gamma_levels(i + 1, grid))
        ahead = math.log(2) - middle
        for part in _BETWEEN if i + 1 < count else [0.0]:
            passed = float((weight * -np.expm1(-ahead / part)).sum()) if part else float(weight.sum())
            levels.append(1 - passed)
            places.append(i + part)
    # The binomial levels are exact at the order statistics; the Poisson ones only interpolate.
    smooth, at = np.asarray(levels), np.asarray(places)
    shift = np.interp(at, np.arange(count), exact - smooth[np.isin(at, np.arange(count))])
    rising = np.maximum.accumulate(smooth + shift)
    rising.flags.writeable = at.flags.writeable = False
    return rising, at


def _replace(out: Array, where: Array, share: Array, ordered: Array) -> None:
    if ordered.size and where.any():
        middle = (np.arange(ordered.size) + 0.5) / ordered.size
        out[where] = np.interp(share[where], middle, ordered)


def _tail_draws(logs: Array, trials: int, weights: Array, draws: int, rng: np.random.Generator) -> Array:
    """Return draws of log θ under the Weibull tail."""
    count, width = len(logs), logs[-1] - logs[0]
    if width <= 0:
        return np.full(draws, logs[0])
    total, cells = _grid(logs, trials)
    within = np.exp(cells - cells.max(axis=1, keepdims=True))
    chance = (weights[:, None] * within / within.sum(axis=1, keepdims=True)).ravel().cumsum()
    even = _even_points(draws, rng)
    cell = np.searchsorted(chance, even[0] * chance[-1])
    which, end = np.divmod(np.minimum(cell, chance.size - 1), len(_OFFSETS))
    gap = np.exp(_OFFSETS[end] + (even[1] - 0.5) * (_OFFSETS[1] - _OFFSETS[0]))
    level = math.log(2) / trials * total[which, end] / _gamma_quantiles(count)[(even[2] * _QUANTILES).astype(int)]
    return np.asarray(logs[0] + width * ((1 + gap) * level ** (1 / EXPONENTS[which]) - gap))


@lru_cache(maxsize=LOWEST)
def _gamma_quantiles(count: int) -> Array:
    """Return quantiles of a gamma law at even levels, cached: inverting it again would be all the cost."""
    return gamma_quantiles(count, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)


def _even_points(draws: int, rng: np.random.Generator) -> Array:
    """Return three rows of numbers between 0 and 1 that fill the cube evenly, from a random start.

    A Kronecker sequence with the powers of the root of x⁴ = x + 1: quantiles of so many even points move by a tenth
    of what those of random points do.
    """
    root = 1.2207440846057596
    steps = np.arange(1, draws + 1) * (1 / root ** np.arange(1, 4))[:, None]
    return np.asarray((steps + rng.random((3, 1))) % 1.0)


def _grid(logs: Array, trials: int) -> tuple[Array, Array]:
    """Return s(a) over (x(k)-a)^c, and the log posterior with flat priors on end and log scale, on exponents × ends.

    With a the end, b the scale and c the exponent, the k lowest of N have the likelihood
    Π (c/b) y(i)^(c-1) · exp(-Σ y(i)^c - (N-k) y(k)^c), y = (x - a)/b. The scale integrates out:
    b^-c is Gamma(k) over s(a) = Σ (x(i)-a)^c + (N-k)(x(k)-a)^c, and θ = a + b (ln 2 / N)^(1/c).
    """
    count, width = len(logs), logs[-1] - logs[0]
    far = np.log((logs - logs[0]) / width + np.exp(_OFFSETS)[:, None])  # log (x - a), one row per end
    total = np.exp(EXPONENTS[:, None, None] * (far - far[:, -1:])).sum(axis=2) + (trials - count)
    cells = (
        (count - 1) * np.log(EXPONENTS)[:, None]
        + (EXPONENTS - 1)[:, None] * far.sum(axis=1)
        - count * (np.log(total) + EXPONENTS[:, None] * far[:, -1])
        + _OFFSETS  # flat in the end, on a grid that is even in its logarithm
    )
    return np.asarray(total), np.asarray(cells)


@lru_cache(maxsize=256)
def _mean_square_ranges(trials: int, count: int) -> Array:
    """Return E[(Λ(k)^(1/c) - Λ(1)^(1/c))²] for each of ``EXPONENTS``, by a fixed set of Rényi draws."""
    spacings = np.random.default_rng(0).exponential(size=(4000, count)) / (trials - np.arange(count))
    arrivals = spacings.cumsum(axis=1)
    ranges = [((arrivals[:, -1] ** (1 / c) - arrivals[:, 0] ** (1 / c)) ** 2).mean() for c in EXPONENTS]
    return np.array(ranges)
