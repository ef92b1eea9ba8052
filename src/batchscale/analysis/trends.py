"""The trend of a workload's own measured optima of one metaparameter against batch size, with its uncertainty.

No rule of thumb is assumed (the paper shows that none holds everywhere): a straight line through the optima, on the
metaparameter's own scale against log batch size, is all that the measured sizes can say about others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.quantiles import student_quantile
from batchscale.spec.bounds import natural_bounds
from batchscale.spec.space import ParameterConfig, ParameterType, Scale

SOFTNESS = 0.1  # a trial with e^0.1 times the best steps weighs e^-1 of the winner in the place of the optimum
_LARGEST = 700.0  # the logarithm of the largest number that there is
FEWEST_OPTIMA = 3  # a line through two points says nothing about its own error


@dataclass(frozen=True)
class Optimum:
    """Where the optimum of a metaparameter lies at one batch size, in coordinates of its scale."""

    log_size: float
    place: float


@dataclass(frozen=True)
class Trend:
    """A straight line of optima: its middle, its slope, the scatter about it, and the degrees of freedom left."""

    optima: tuple[Optimum, ...]
    centre: float
    level: float
    slope: float
    scatter: float
    freedom: int

    def at(self, log_size: float) -> float:
        """The place of the optimum by the line."""
        return self.level + self.slope * (log_size - self.centre)

    def reach(self, log_size: float, confidence: float, *, measured: bool) -> float:
        """Half the width of the range that holds the optimum, about a measured optimum or about the line."""
        factor = 1.0
        if not measured:
            spread = sum((one.log_size - self.centre) ** 2 for one in self.optima)
            factor = math.sqrt(1 + 1 / len(self.optima) + (log_size - self.centre) ** 2 / spread)
        return student_quantile(self.freedom, (1 + confidence) / 2) * self.scatter * factor


def to_scale(config: ParameterConfig, value: float) -> float:
    """A value in the coordinates of its scale: its logarithm, -log(1 - value), or itself."""
    if config.scale is Scale.LOG:
        return math.log(value)
    return -math.log1p(-value) if config.scale is Scale.REVERSE_LOG else value


def from_scale(config: ParameterConfig, place: float) -> float:
    """The value at a place of its scale, within the bounds that the metaparameter has by nature."""
    if config.scale is Scale.LOG:
        value = math.exp(max(min(place, _LARGEST), -_LARGEST))
    else:
        value = -math.expm1(-place) if config.scale is Scale.REVERSE_LOG else place
    bounds = natural_bounds(config.name)
    value = min(max(value, bounds.low), math.nextafter(bounds.high, 0) if bounds.high_open else bounds.high)
    return float(round(value)) if config.type is ParameterType.INTEGER else value


def soft_optimum(places: Array, steps: Array) -> float:
    """The mean place of the trials that reached the goal, weighted by how close they came to the fewest steps.

    The winner alone scatters twice as much: where the optimum is flat, any of its neighbours may win by chance.
    """
    weights = np.exp(-np.log(steps / steps.min()) / SOFTNESS)
    return float((places * weights).sum() / weights.sum())


def fit_trend(optima: Sequence[Optimum]) -> Trend | None:
    """The least-squares line of optima at three batch sizes or more; None with fewer."""
    if len(optima) < FEWEST_OPTIMA:
        return None
    x, y = (np.array([getattr(one, name) for one in optima]) for name in ("log_size", "place"))
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / spread)
    rest = y - y.mean() - slope * (x - x.mean())
    freedom = len(x) - 2
    scatter = math.sqrt(float((rest**2).sum()) / freedom)
    return Trend(tuple(optima), float(x.mean()), float(y.mean()), slope, scatter, freedom)
