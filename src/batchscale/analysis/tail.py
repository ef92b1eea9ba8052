"""What a fresh search of the same size would have found: the confidence distribution of a study's steps to result.

The quantity is the median θ of the minimum over N fresh trials in the same space. The measured minimum t(1) is
median-unbiased for it, by definition. Above t(1) no model is needed: P(t(i) < θ) is binomial, so the runners-up are
confidence bounds whatever the distribution. Below t(1) there is no data, and the plain bootstrap puts nothing there,
which is why it under-covers. There a tail model speaks: log steps near their lower end follow a three-parameter
Weibull law, seen through its k lowest values of N (type-II censoring), so that trials that never reach the goal, and
raced trials that were stopped, need nothing but to be counted. docs/analysis.md has the formulas and the coverage.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.quantiles import binomial_levels, gamma_levels, gamma_quantiles

LOWEST = 8  # order statistics that the tail is read from; more would ask the law to hold further in
FEWEST = 2  # with one finisher there is no spacing, hence no interval

# Tail exponents: the k-th lowest lies above the end as (k/N)^(1/exponent). A quadratic bowl in d metaparameters has
# d/2, any positive density at the end has 1, light tails have large ones.
EXPONENTS = np.geomspace(0.35, 8.0, 10)

_OFFSETS = np.linspace(-7.0, 5.0, 61)  # log distance of the lower end from t(1), in units of t(k) - t(1)
_FARTHEST = 20.0  # two finishers can say "anything", which must stay a number
_QUANTILES = 4096
_BETWEEN = np.linspace(0.0, 1.0, 11)[:-1]


@dataclass(frozen=True)
class Finishers:
    """The steps of a study's trials that reached the goal, and how many trials the search had."""

    steps: Array
    trials: int

    @property
    def lowest(self) -> Array:
        """Logarithms of the lowest steps, growing: what the tail is read from."""
        return np.sort(np.log(self.steps))[:LOWEST]

    @property
    def has_interval(self) -> bool:
        """Whether there are enough of them to say anything about a fresh search."""
        return len(self.steps) >= FEWEST


def pool_exponents(studies: Sequence[Finishers]) -> Array:
    """How likely each of ``EXPONENTS`` is, by all studies of a curve together (they search the same kind of space)."""
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
    """Draws of θ from its confidence distribution; their median is the study's steps to result.

    Args:
        study: At least two finishers.
        weights: Of ``EXPONENTS``, by ``pool_exponents``.
        draws: How many.
        rng: Where the randomness comes from.
    """
    logs, trials = study.lowest, study.trials
    known = len(logs)
    levels, places = order_levels(trials, known)
    share = (np.arange(draws) + rng.random()) / draws  # evenly: quantiles are all that draws are for
    out = np.interp(share, levels, np.interp(places, np.arange(known), logs))
    model = _tail_draws(logs, trials, weights, 4 * draws, rng)
    below, beyond = np.sort(model[model < logs[0]]), np.sort(model[model > logs[-1]])
    _replace(out, share < levels[0], share / levels[0], below)
    _replace(out, share > levels[-1], (share - levels[-1]) / (1 - levels[-1]), beyond)
    return np.exp(np.clip(out, logs[0] - _FARTHEST, logs[0] + _FARTHEST))


def noise_variance(study: Finishers, weights: Array) -> float:
    """The mean square of log t(1) - log θ, right on average over studies.

    For one study, ``draw_steps`` must allow for not knowing the spread of its tail. A boundary is found from many
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
def order_levels(trials: int, known: int) -> tuple[Array, Array]:
    """Confidence that θ lies below the order statistics t(1)…t(known), and between them; and their places 0, 0.1, ….

    P(θ <= t(i)) = P(Binomial(N, q) < i) with (1 - q)^N = 1/2. Between t(i) and t(i+1) the Poisson limit with locally
    even spacing gives P(Γ_i + λE > ln 2) for the place i + λ (the interpolation of Hettmansperger and Sheather).
    """
    chance = -math.expm1(-math.log(2) / trials)
    exact = binomial_levels(trials, chance, known)
    grid = np.linspace(0.0, math.log(2), 201)
    middle = (grid[1:] + grid[:-1]) / 2
    levels, places = [], []
    for i in range(known):
        weight = np.diff(gamma_levels(i + 1, grid))
        ahead = math.log(2) - middle
        for part in _BETWEEN if i + 1 < known else [0.0]:
            passed = float((weight * -np.expm1(-ahead / part)).sum()) if part else float(weight.sum())
            levels.append(1 - passed)
            places.append(i + part)
    # The binomial levels are exact at the order statistics; the Poisson ones only say how to go between.
    smooth, at = np.asarray(levels), np.asarray(places)
    shift = np.interp(at, np.arange(known), exact - smooth[np.isin(at, np.arange(known))])
    rising = np.maximum.accumulate(smooth + shift)
    rising.flags.writeable = at.flags.writeable = False
    return rising, at


def _replace(out: Array, where: Array, share: Array, ordered: Array) -> None:
    if ordered.size and where.any():
        middle = (np.arange(ordered.size) + 0.5) / ordered.size
        out[where] = np.interp(share[where], middle, ordered)


def _tail_draws(logs: Array, trials: int, weights: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws of log θ under the Weibull tail."""
    known, width = len(logs), logs[-1] - logs[0]
    if width <= 0:
        return np.full(draws, logs[0])
    total, cells = _grid(logs, trials)
    within = np.exp(cells - cells.max(axis=1, keepdims=True))
    chance = (weights[:, None] * within / within.sum(axis=1, keepdims=True)).ravel().cumsum()
    even = _even(draws, rng)
    cell = np.searchsorted(chance, even[0] * chance[-1])
    which, end = np.divmod(np.minimum(cell, chance.size - 1), len(_OFFSETS))
    gap = np.exp(_OFFSETS[end] + (even[1] - 0.5) * (_OFFSETS[1] - _OFFSETS[0]))
    level = math.log(2) / trials * total[which, end] / _gamma_quantiles(known)[(even[2] * _QUANTILES).astype(int)]
    return np.asarray(logs[0] + width * ((1 + gap) * level ** (1 / EXPONENTS[which]) - gap))


@lru_cache(maxsize=LOWEST)
def _gamma_quantiles(known: int) -> Array:
    """Quantiles of a gamma law at so many even levels: looked up, since inverting it anew would be all the cost."""
    return gamma_quantiles(known, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)


def _even(draws: int, rng: np.random.Generator) -> Array:
    """Three rows of numbers between 0 and 1 that fill the cube evenly, from a random start.

    A Kronecker sequence with the powers of the root of x⁴ = x + 1: quantiles of so many even points move by a tenth
    of what those of random points do.
    """
    root = 1.2207440846057596
    steps = np.arange(1, draws + 1) * (1 / root ** np.arange(1, 4))[:, None]
    return np.asarray((steps + rng.random((3, 1))) % 1.0)


def _grid(logs: Array, trials: int) -> tuple[Array, Array]:
    """On exponents × ends: s(a) over (x(k)-a)^c, and the log posterior with flat priors on the end and on log scale.

    With a the end, b the scale and c the exponent, the k lowest of N have the likelihood
    Π (c/b) y(i)^(c-1) · exp(-Σ y(i)^c - (N-k) y(k)^c), y = (x - a)/b. The scale integrates out:
    b^-c is Gamma(k) over s(a) = Σ (x(i)-a)^c + (N-k)(x(k)-a)^c, and θ = a + b (ln 2 / N)^(1/c).
    """
    known, width = len(logs), logs[-1] - logs[0]
    far = np.log((logs - logs[0]) / width + np.exp(_OFFSETS)[:, None])  # log (x - a), one row per end
    total = np.exp(EXPONENTS[:, None, None] * (far - far[:, -1:])).sum(axis=2) + (trials - known)
    cells = (
        (known - 1) * np.log(EXPONENTS)[:, None]
        + (EXPONENTS - 1)[:, None] * far.sum(axis=1)
        - known * (np.log(total) + EXPONENTS[:, None] * far[:, -1])
        + _OFFSETS  # flat in the end, on a grid that is even in its logarithm
    )
    return np.asarray(total), np.asarray(cells)


@lru_cache(maxsize=256)
def _mean_square_ranges(trials: int, known: int) -> Array:
    """E[(Λ(k)^(1/c) - Λ(1)^(1/c))²] for each of ``EXPONENTS``, by a fixed set of Rényi draws."""
    spacings = np.random.default_rng(0).exponential(size=(4000, known)) / (trials - np.arange(known))
    arrivals = spacings.cumsum(axis=1)
    ranges = [((arrivals[:, -1] ** (1 / c) - arrivals[:, 0] ** (1 / c)) ** 2).mean() for c in EXPONENTS]
    return np.array(ranges)
