"""Quantities that a study may be asked for: the value of each for every law of a confidence set, and their interval.

The interval of a quantity is its range over the laws that agree with the points. Values beyond what the sizes under
consideration can show are held at the border: such an end is not bounded.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from batchscale.analysis.confidence_set import ConfidenceSet
from batchscale.analysis.curves import Array
from batchscale.analysis.families import FAR, log_critical, log_optimal
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.regimes import DEFAULT_THRESHOLDS
from batchscale.formatting import rounded_text, times_text
from batchscale.spec.adaptive import Aim

_TICKS = 240  # batch sizes between which the end of perfect scaling and the fastest size of a law are looked up


class Spread(ABC):
    """How far the laws of a set are apart in what is asked for, as logarithms of factors.

    Attributes:
        interval: The batch sizes that the laws allow.
        subject: What a further measurement narrows, for sentences.
        needed_size: A batch size that must be measured before a run ends; None: any will do.
    """

    interval: Estimate
    subject: str
    needed_size: int | None = None

    @abstractmethod
    def width(self, left: NDArray[np.bool_] | None = None) -> float:
        """Return the logarithm of the factor over the laws that are left; None: all."""

    @abstractmethod
    def widths(self, left: NDArray[np.bool_], truths: NDArray[np.intp]) -> Array:
        """Return it for several sets: row i has the laws that are left if law ``truths[i]`` is true."""

    @abstractmethod
    def describe(self, reached: float | None = None) -> str:
        """Return the answer so far as a clause; ``reached`` is the factor that ended the run."""


class OpenQuestion(ABC):
    """What an adaptive experiment is asked for."""

    @property
    @abstractmethod
    def problem(self) -> str:
        """Why nothing can answer it, as a clause; empty if something can."""

    @abstractmethod
    def spread(self, laws: ConfidenceSet) -> Spread:
        """Return the spread of what is asked for over the laws."""


def factor_text(log_factor: float) -> str:
    """Return a factor in words.

    >>> factor_text(math.log(1.5)), factor_text(20.0)
    ('a factor of 1.50', 'a factor of over 1,000')
    """
    factor = math.exp(min(log_factor, 100.0))
    return f"a factor of {times_text(factor)}" if factor < 1000 else "a factor of over 1,000"


@final
@dataclass(frozen=True)
class AimQuestion(OpenQuestion):
    """The quantity that is asked for, between the smallest and the largest size that may be measured.

    ``step_time`` has the seconds of a step without and per example, for the fastest size: a + c B.
    """

    quantity: Aim
    smallest: int
    largest: int
    step_time: tuple[float, float] = (0.0, 1.0)

    @property
    def problem(self) -> str:
        """Nothing: every curve has these sizes."""
        return ""

    def spread(self, laws: ConfidenceSet) -> "SizeSpread":
        """Return the spread of the quantity."""
        return SizeSpread(log_values(laws, self), self)

    @property
    def borders(self) -> tuple[float, float]:
        """The logarithms of the sizes from which on an end is not bounded."""
        beyond = FAR if self.quantity is Aim.CRITICAL else 0.0
        return math.log(self.smallest) - beyond, math.log(self.largest) + beyond


@final
class SizeSpread(Spread):
    """The range of a batch size over the laws."""

    def __init__(self, values: Array, question: AimQuestion) -> None:
        self.values, self.has_value = values, ~np.isnan(values)
        self.interval = as_estimate(values, question)
        self.label = f"the {question.quantity.label}"
        self.subject = f"the interval of {self.label}"

    def width(self, left: NDArray[np.bool_] | None = None) -> float:
        """Return the width of the range."""
        return log_width(self.values if left is None else self.values[left])

    def widths(self, left: NDArray[np.bool_], _truths: NDArray[np.intp]) -> Array:
        """Return the width of the range in each row, whatever law is true."""
        left = left & self.has_value
        high = np.where(left, self.values, -np.inf).max(axis=1)
        low = np.where(left, self.values, np.inf).min(axis=1)
        return np.where(np.isfinite(high) & np.isfinite(low), high - low, 0.0)

    def describe(self, reached: float | None = None) -> str:
        """Return the interval in words."""
        low, high = self.interval.low, self.interval.high
        if low is None or high is None:
            ends = [] if low is None else [f"at least {rounded_text(low)}"]
            ends += [] if high is None else [f"at most {rounded_text(high)}"]
            return f"{self.label} is {ends[0]}" if ends else f"{self.label} is not bounded by the points"
        narrow = "" if reached is None else f", narrower than a factor of {reached:g}"
        return f"{self.label} lies between {rounded_text(low)} and {rounded_text(high)}{narrow}"


def log_values(laws: ConfidenceSet, question: AimQuestion) -> Array:
    """Return the logarithm of the quantity for every law, held within the borders; NaN for a law that has none."""
    if question.quantity is Aim.CRITICAL:
        values = np.concatenate([log_critical(part.family, part.laws) for part in laws.parts])
    elif question.quantity is Aim.OPTIMAL:
        values = np.concatenate([log_optimal(part.family, part.laws) for part in laws.parts])
    else:
        values = _on_grid(laws, question)
    return np.asarray(np.clip(values, *question.borders))


def interval(laws: ConfidenceSet, question: AimQuestion) -> Estimate:
    """Return the quantity by the best law with its interval; None at an end that the points do not bound."""
    values = log_values(laws, question)
    return as_estimate(values, question, _best_value(laws, question))


def as_estimate(values: Array, question: AimQuestion, best: float | None = None) -> Estimate:
    """Return the range of these logarithms as an interval."""
    values = values[~np.isnan(values)]
    if not values.size:
        return Estimate()
    least, most = question.borders
    low, high = float(values.min()), float(values.max())
    return Estimate(best, None if low <= least else math.exp(low), None if high >= most else math.exp(high))


def log_width(values: Array) -> float:
    """Return the width of the range of these logarithms; 0 without any."""
    values = values[~np.isnan(values)]
    return float(values.max() - values.min()) if values.size else 0.0


def _best_value(laws: ConfidenceSet, question: AimQuestion) -> float | None:
    best = laws.best
    if question.quantity is Aim.CRITICAL:
        return best.b_crit
    if question.quantity is Aim.OPTIMAL:
        return best.b_opt
    grid = _grid(question)
    return math.exp(float(_look_up(laws.best_log_steps(np.exp(grid))[None], grid, question)[0]))


def _grid(question: AimQuestion) -> Array:
    return np.linspace(math.log(question.smallest), math.log(question.largest), _TICKS)


def _on_grid(laws: ConfidenceSet, question: AimQuestion) -> Array:
    grid = _grid(question)
    return _look_up(laws.log_steps(np.exp(grid)), grid, question)


def _look_up(log_steps: Array, grid: Array, question: AimQuestion) -> Array:
    """Return the quantity of laws that are given by their log steps on a grid of log sizes."""
    if question.quantity is Aim.FASTEST:
        fixed, per_example = question.step_time
        return np.asarray(grid[np.argmin(log_steps + np.log(fixed + per_example * np.exp(grid)), axis=1)])
    examples = log_steps + grid
    first = np.argmin(examples, axis=1)[:, None]
    line = np.take_along_axis(examples, first, axis=1) + math.log1p(DEFAULT_THRESHOLDS.perfect)
    beyond = (examples > line) & (np.arange(len(grid)) >= first)
    last = np.where(beyond.any(axis=1), np.argmax(beyond, axis=1) - 1, len(grid) - 1)
    return np.asarray(grid[last])
