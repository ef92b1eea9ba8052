"""The steps that one training with given metaparameters needs, and its chance to reach the goal.

The steps to result are the best of a search. One training with the suggested values is one draw, with its own seed. Its
steps follow from all trials of the curve: log steps = level of the size + bowl around the size's optimum + noise. A
trial that a race stopped, or that used up its budget, is censored: it needs more than the steps it had. Trials count
less the farther from the optimum they are. Diverged trials, and sizes that never reached the goal, count for the chance
alone.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from batchscale.analysis.curves import AnyArray, Array
from batchscale.analysis.intervals import Estimate

LEVEL = 0.9
DRAWS = 4000
ROUNDS = 60  # of expectation and maximization
FEWEST_NEAR = 8.0  # trials, in effective number, that the chance is counted over

_NOISE = 0.2  # of log steps between seeds, as far as the trials themselves do not tell
_NOISE_WEIGHT = 4.0  # the number of trials that this assumption is worth
_SLOPE, _SLOPE_ERROR = 1.0, 0.3  # of log steps far off the best rate, assumed likewise: half the rate, twice the steps
_OTHER_SLOPE, _OTHER_ERROR = 0.3, 0.5  # and of other metaparameters, a standard deviation off
_FAR = 1.0  # a trial with this much excess counts half
_NEAR = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)  # standard deviations that count as near, the first that suffices
_NEAR_SIZE = math.log(8)
_PRIOR_REACHED = 0.9  # the chance without any trial, worth one trial
_NORMAL = NormalDist()


@dataclass(frozen=True, eq=False)
class TrialCloud:
    """The trials of a curve as arrays, one row each.

    ``offsets`` are places less the smoothed optimum of the trial's size, in units of ``spread``; 0 for a metaparameter
    that a trial lacks. ``is_rate`` marks the column of the log learning rate, if there is one. ``log_steps`` are the
    steps to the goal, or those trained by a trial that did not reach it.
    ``reached`` and ``failed`` (diverged, or at a size that never reached the goal) are exclusive; a trial with neither
    was stopped on the way, or used up its budget.
    """

    log_sizes: Array
    offsets: Array
    log_steps: Array
    reached: AnyArray
    failed: AnyArray
    spread: Array
    is_rate: AnyArray

    @property
    def units(self) -> Array:
        """The bowl's offset for one of ``offsets``: the rate counts in factors of e."""
        return np.where(self.is_rate, self.spread, 1.0)


@dataclass(frozen=True, eq=False)
class Bowl:
    """Log steps near the optimum: a level for each size, a bowl in each coordinate, the noise of a seed.

    The bowl is slope·(√(1+z²) - 1): round at the optimum, and straight far off it, as steps are inverse to the rate.
    """

    log_sizes: Array
    levels: Array
    level_errors: Array
    slopes: Array
    units: Array
    noise: float

    def excess(self, offsets: Array) -> Array:
        """Return the log steps above the level at offsets from the optimum."""
        return np.asarray(_shape(offsets * self.units) @ self.slopes)


def _shape(offsets: Array) -> Array:
    return np.asarray(np.sqrt(1 + offsets**2) - 1)


def fit_bowl(cloud: TrialCloud) -> Bowl:
    """Return the bowl of the trials that did not diverge, by expectation and maximization over the censored ones."""
    used = ~cloud.failed
    sizes, group = np.unique(cloud.log_sizes[used], return_inverse=True)
    offsets, measured, reached = cloud.offsets[used], cloud.log_steps[used], cloud.reached[used]
    levels_of = (group[:, None] == np.arange(len(sizes))).astype(float)
    count, bowls = len(sizes), _shape(offsets * cloud.units)
    design = np.hstack([levels_of, bowls])
    start = np.array([measured[(group == i) & reached].mean() for i in range(count)])
    target = np.append(start, np.where(cloud.is_rate, _SLOPE, _OTHER_SLOPE))
    errors = np.append(np.full(count, 10.0), np.where(cloud.is_rate, _SLOPE_ERROR, _OTHER_ERROR))
    params, noise = target.copy(), _NOISE
    for _ in range(ROUNDS):
        weights = 1 / (1 + (bowls @ params[count:] / _FAR) ** 2)
        expected, spread, information = _censored(measured, design @ params, noise, reached)
        prior = (noise / errors) ** 2
        squares = design.T @ (design * weights[:, None]) + np.diag(prior)
        params = np.linalg.solve(squares, design.T @ (weights * expected) + prior * target)
        params[count:] = np.maximum(params[count:], 0.0)
        rest = weights * ((expected - design @ params) ** 2 + spread)
        free = max(float(weights.sum()) - count / 2, 1.0)
        noise = math.sqrt((float(rest.sum()) + _NOISE_WEIGHT * _NOISE**2) / (free + _NOISE_WEIGHT))
    known = design.T @ (design * (weights * information)[:, None]) + np.diag((noise / errors) ** 2)
    level_errors = noise * np.sqrt(np.diag(np.linalg.inv(known))[:count])
    return Bowl(sizes, params[:count], level_errors, params[count:], cloud.units, noise)


def _censored(measured: Array, means: Array, noise: float, reached: AnyArray) -> tuple[Array, Array, Array]:
    """Return the expected log steps of each trial, their variance and its information; as measured where it reached."""
    at = (measured - means) / noise
    hazard = _hazard(at)
    expected = np.where(reached, measured, means + noise * hazard)
    information = np.where(reached, 1.0, np.clip(hazard * (hazard - at), 0.0, 1.0))
    spread = np.where(reached, 0.0, noise**2 * (1 - np.clip(hazard * (hazard - at), 0.0, 1.0)))
    return expected, spread, information


def _hazard(at: Array) -> Array:
    """Return density over survival of the normal law; beyond six deviations its asymptote."""
    near = np.minimum(at, 6.0)
    survival = np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in near])
    density = np.exp(-0.5 * near**2) / math.sqrt(2 * math.pi)
    return np.asarray(np.where(at > 6.0, at + 1 / np.maximum(at, 6.0), density / survival))


@dataclass(frozen=True, eq=False)
class Question:
    """The training asked about.

    ``log_level`` are draws of the level of its size, ``offsets`` draws of its place against the true optimum (a row
    each, in units of the cloud's spread), ``place`` its place against the estimated one.
    """

    log_size: float
    log_level: Array
    offsets: Array
    place: Array
    place_error: Array
    log_budget: float | None
    spacing: float


def expected_steps(bowl: Bowl, question: Question, rng: np.random.Generator) -> Estimate:
    """Return the median and the 90 % interval of the steps of one training that reaches the goal.

    The goal is seen at an evaluation only: the interval is half an evaluation spacing wider at both ends.
    """
    drawn = question.log_level + bowl.excess(question.offsets) + bowl.noise * rng.normal(size=len(question.log_level))
    low, middle, high = (
        math.exp(end) for end in np.quantile(drawn, ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2), method="inverted_cdf")
    )
    low = max(math.floor(low - question.spacing / 2), 1)
    return Estimate(max(middle, 1.0), float(low), float(max(math.ceil(high + question.spacing / 2), 1)))


def reach_chance(cloud: TrialCloud, bowl: Bowl, question: Question) -> tuple[float, float]:
    """Return the chance of one training to reach the goal within its budget, and the number of trials it rests on.

    The chance not to fail, times that to be in time. The first is a share of the trials near its place: one that
    reached the goal counts in full, a failed one not at all, and one that ended without either by the chance that it
    was only slow, which the bowl gives.
    """
    means = np.interp(cloud.log_sizes, bowl.log_sizes, bowl.levels) + bowl.excess(cloud.offsets)
    slow = np.array([1 - _NORMAL.cdf(value) for value in (cloud.log_steps - means) / bowl.noise])
    by_size = -0.5 * ((cloud.log_sizes - question.log_size) / _NEAR_SIZE) ** 2
    by_size -= by_size.max()
    weights = np.zeros(len(slow))
    for width in _NEAR:
        far = (cloud.offsets - question.place) ** 2 / (width**2 + question.place_error**2)
        weights = np.exp(by_size - 0.5 * far.sum(axis=1))
        if weights.sum() >= FEWEST_NEAR:
            break
    number = float(weights.sum())
    share = _PRIOR_REACHED
    for _ in range(ROUNDS):
        only_slow = share * slow / (share * slow + 1 - share)
        good = np.where(cloud.reached, 1.0, np.where(cloud.failed, 0.0, only_slow))
        share = (float((weights * good).sum()) + _PRIOR_REACHED) / (number + 1)
    if question.log_budget is not None:
        middles = question.log_level + bowl.excess(question.offsets)
        share *= sum(_NORMAL.cdf((question.log_budget - value) / bowl.noise) for value in middles[::20]) / len(
            middles[::20]
        )
    return share, number
