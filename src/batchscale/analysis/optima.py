"""The optimum of the metaparameters against batch size: its place at each size, between sizes, and beyond them.

Places are coordinates in which optima of different sizes can be averaged: every metaparameter's own scale, and for the
learning rate the logarithm of the effective rate. Momentum γ sums gradients over about 1/(1-γ) steps, but over no more
than the N steps of the training: its place is -log(1-γ+1/N), and the effective rate is η/(1-γ+1/N). For N(1-γ) much
above 1 that is the paper's η/(1-γ) (section 2.2); for N(1-γ) below 1, momentum makes no difference. Adam's β likewise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array
from batchscale.formatting import metaparameter_text
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, natural_bounds

RATE, MOMENTUM = "learning_rate", "momentum"
DECAY_STEPS = "learning_rate_decay_steps"  # its place is its share of the steps of a training
AVERAGES = (MOMENTUM, "beta1", "beta2")  # the weights of running averages, over 1/(1 - value) steps
SOFTNESS = 0.25  # a trial with e^0.25 times the best steps weighs e^-1 of the winner in the place of the optimum
BANDWIDTH = math.log(4)  # of the smoothing over log batch size
FEWEST_SIZES = 3  # a line through two points has no error estimate

_LONGEST = 0.2  # no average is suggested over more than five times the steps of a training
_LARGEST = 700.0  # the logarithm of the largest float
# The trend: rate ∝ (B/(1 + B/B0))^power. Half of the prior weight is on no bend at all.
_POWERS = np.linspace(-0.5, 1.5, 21)
_USUAL_POWER, _POWER_SPREAD = 0.6, 0.4  # between the heuristics ½ and 1, with room for none
_BENDS = 16
_BEND_BEYOND = math.log(4)  # the farthest B0 outside the sizes
_NO_BEND = 0.5
SCATTER = 0.3  # of optima about a trend, as far as the optima themselves do not tell
_SCATTER_WEIGHT = 3.0  # the number of optima that this assumption is worth


def to_scale(config: ParameterConfig, value: float) -> float:
    """Return a value in the coordinates of its scale: its logarithm, -log(1 - value), or itself."""
    if config.scale is Scale.LOG:
        return math.log(value)
    return -math.log1p(-value) if config.scale is Scale.REVERSE_LOG else value


def from_scale(config: ParameterConfig, place: float) -> float:
    """Return the value at a place of its scale, within the bounds that the metaparameter has by nature."""
    if config.scale is Scale.LOG:
        value = math.exp(max(min(place, _LARGEST), -_LARGEST))
    else:
        value = -math.expm1(-place) if config.scale is Scale.REVERSE_LOG else place
    bounds = natural_bounds(config.name)
    value = min(max(value, bounds.low), math.nextafter(bounds.high, 0) if bounds.high_open else bounds.high)
    return float(round(value)) if config.type is ParameterType.INTEGER else value


def round_value(config: ParameterConfig, value: float) -> float:
    """Return a value in three digits, which is more than any search resolves; whole numbers stay as they are."""
    return value if config.type is ParameterType.INTEGER else float(metaparameter_text(value))


@dataclass(frozen=True)
class Coordinates:
    """The metaparameters whose values may be averaged over trials and sizes, by name.

    ``joint``: the learning rate is taken together with momentum, as the effective rate.
    """

    configs: Mapping[str, ParameterConfig]
    joint: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coordinates, in order."""
        return tuple(self.configs)

    def places(self, trials: pl.DataFrame, steps: float) -> Array:
        """Return a row of coordinates for each trial of one size; NaN where a trial lacks the metaparameter.

        Args:
            trials: A column for each metaparameter.
            steps: That a training of this size has: the steps to result.
        """
        columns = []
        for name, config in self.configs.items():
            values = trials[name].cast(pl.Float64).fill_null(math.nan).to_numpy()
            if name in AVERAGES:
                columns.append(-np.log(1 - values + 1 / steps))
            elif name == DECAY_STEPS:
                columns.append(np.log(np.maximum(values, 1.0) / steps))
            else:
                columns.append(np.array([to_scale(config, value) for value in values.tolist()]))
            if name == RATE and self.joint:
                columns[-1] = columns[-1] - np.log(1 - trials[MOMENTUM].fill_null(0.0).to_numpy() + 1 / steps)
        return np.stack(columns, axis=1) if columns else np.zeros((trials.height, 0))

    def value(self, name: str, place: float, momentum: float | None, steps: float) -> float:
        """Return the value at a place; of the learning rate, that which has this effective rate with this momentum.

        No average is suggested over many more steps than a training has.
        """
        if name in AVERAGES:
            return min(max(1 - max(math.exp(-place) - 1 / steps, _LONGEST / steps), 0.0), 1 - 1e-9)
        if name == DECAY_STEPS:
            return float(max(round(math.exp(min(place, _LARGEST)) * steps), 1))
        if name == RATE and self.joint:
            place = place + math.log(1 - (momentum or 0.0) + 1 / steps)
        return from_scale(self.configs[name], place)


def find_coordinates(trials: pl.DataFrame, spaces: Sequence[Mapping[str, ParameterConfig]]) -> Coordinates:
    """Return the coordinates of trials: one for each metaparameter with a range whose scale all studies share."""
    configs = {}
    for name in dict.fromkeys(name for space in spaces for name in space):
        shared = [space[name] for space in spaces if name in space]
        values = trials[name].drop_nulls() if name in trials.columns else pl.Series([], dtype=pl.Float64)
        if len({(config.scale, config.type) for config in shared}) != 1 or not len(values):
            continue
        low, high = float(values.min()), float(values.max())  # type: ignore[arg-type] # numbers
        if name in AVERAGES and not 0 <= low <= high < 1:
            continue
        impossible = (shared[0].scale is Scale.LOG and low <= 0) or (shared[0].scale is Scale.REVERSE_LOG and high >= 1)
        if shared[0].type is not ParameterType.DISCRETE and not impossible:
            configs[name] = shared[0]
    joint = False
    if RATE in configs and configs[RATE].scale is Scale.LOG and MOMENTUM in trials.columns:
        momenta = trials[MOMENTUM].drop_nulls()
        joint = len(momenta) > 0 and bool(((momenta >= 0) & (momenta < 1)).all())
    return Coordinates(configs, joint)


def soft_weights(steps: Array) -> Array:
    """Return the weight of each trial in the optimum, by how close it came to the fewest steps; they add up to 1.

    The winner alone scatters more: where the optimum is flat, any of its neighbours may win by chance.
    """
    weights = np.exp(-np.log(steps / steps.min()) / SOFTNESS)
    return np.asarray(weights / weights.sum())


def soft_optimum(places: Array, steps: Array) -> Array:
    """Return the mean place of the trials that reached the goal, by their soft weights; NaN where none has one."""
    weights = soft_weights(steps)[:, None] * ~np.isnan(places)
    with np.errstate(invalid="ignore"):
        return np.asarray((np.nan_to_num(places) * weights).sum(axis=0) / weights.sum(axis=0))


def smooth_place(log_sizes: Array, optima: Array, log_size: float) -> tuple[float, float]:
    """Return the local straight line through the optima at a size, and the sum of squares of its weights.

    >>> smooth_place(np.array([0.0, 1.0]), np.array([2.0, 4.0]), 0.5)
    (3.0, 0.5)
    """
    if len(log_sizes) == 1:
        return float(optima[0]), 1.0
    distance = log_sizes - log_size
    kernel = np.exp(-0.5 * ((np.abs(distance) - np.abs(distance).min()) / BANDWIDTH) ** 2)
    mean = (kernel * distance).sum() / kernel.sum()
    spread = (kernel * (distance - mean) ** 2).sum()
    weights = kernel * (1 / kernel.sum() - mean * (distance - mean) / spread)
    return round(float((weights * optima).sum()), 12), round(float((weights**2).sum()), 12)


@dataclass(frozen=True, eq=False)
class Trend:
    """Trends of a rate, place = level + power·log(B/(1 + B/B0)), with weights by how well they fit the optima."""

    powers: Array
    log_bends: Array  # infinite: a straight line
    levels: Array
    weights: Array
    variance: float  # of an optimum about its trend
    count: int

    def at(self, log_size: float) -> tuple[float, float]:
        """Return the mean of the place of the optimum, and its standard error."""
        places = self.levels + self.powers * _bent(log_size, self.log_bends)
        mean = float((self.weights * places).sum())
        between = float((self.weights * (places - mean) ** 2).sum())
        return mean, math.sqrt(between + self.variance * (1 + 1 / self.count))


def _bent(log_size: Array | float, log_bends: Array) -> Array:
    return np.asarray(log_size - np.logaddexp(0, log_size - log_bends))


def fit_trend(log_sizes: Array, optima: Array, scatter: float = SCATTER) -> Trend | None:
    """Return the trends of optima at three batch sizes or more; None with fewer.

    Each trend of a grid gets its best level and the weight prior × (rss + νs²)^(-(n-1+ν)/2), the marginal likelihood
    with unknown scatter. A bend that the sizes do not show is neither excluded nor assumed: the mean levels off a bit.
    """
    if len(log_sizes) < FEWEST_SIZES:
        return None
    bends = np.linspace(log_sizes.min() - _BEND_BEYOND, log_sizes.max() + _BEND_BEYOND, _BENDS)
    powers, log_bends = (grid.ravel() for grid in np.meshgrid(_POWERS, np.append(bends, math.inf), indexing="ij"))
    rest = optima - powers[:, None] * _bent(log_sizes[None, :], log_bends[:, None])
    levels = rest.mean(axis=1)
    squares = ((rest - levels[:, None]) ** 2).sum(axis=1) + _SCATTER_WEIGHT * scatter**2
    freedom = len(optima) - 1 + _SCATTER_WEIGHT
    score = np.where(np.isinf(log_bends), math.log(_NO_BEND), math.log((1 - _NO_BEND) / _BENDS))
    score = score - 0.5 * freedom * np.log(squares) - 0.5 * ((powers - _USUAL_POWER) / _POWER_SPREAD) ** 2
    weights = np.exp(score - score.max())
    weights = weights / weights.sum()
    variance = float((weights * squares).sum()) / freedom
    return Trend(powers, log_bends, levels, weights, variance, len(optima))
