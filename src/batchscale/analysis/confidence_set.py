"""The confidence set of a curve: all scaling laws that agree with its points. Intervals of boundaries come from it.

The set is the union over the families that the evidence does not reject (``evidence``). Of each it has every law whose
weighted sum of squares lies within Student's bound of the family's least; the sharp family stands for its member, the
hyperbola. The interval of anything that a law determines (B_crit, B_opt, the useful size, the gain of the last
doubling, the steps anywhere) is the range of that thing over the set: its profile interval. Since all intervals come
from one set, no two of them contradict each other. docs/analysis.md has the measured coverage.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.families import FAR, Family, bounds, log_critical, log_curves, log_optimal
from batchscale.analysis.least_squares import FamilyFit, sum_of_squares
from batchscale.analysis.noise import Noise
from batchscale.analysis.scaling import ScalingFit

FEWEST_SIZES = 3

_ROUNDS = 12
_TICKS = {1: (401,), 2: (41, 21), 3: (17, 15, 13)}  # by the number of coordinates
_ENOUGH = 250  # laws of a grid inside the set, which show its range to a few hundredths
_RIM_ROUNDS = 3
_ENOUGH_FOR_AXES = 25  # laws that show in which directions the set is long


@dataclass(frozen=True, eq=False)
class FamilyLaws:
    """Laws of one family: their coordinates, log scales, and the slack of the log scales. The first is the best."""

    family: Family
    laws: Array
    log_scale: Array
    slack: Array

    def log_steps(self, batch_size: float | Array) -> Array:
        """Return log steps of every law at these batch sizes: one row per law."""
        logs = np.log(np.atleast_1d(np.asarray(batch_size, dtype=np.float64)))
        return np.asarray(self.log_scale[:, None] + log_curves(self.family, self.laws, logs))


@dataclass(frozen=True, eq=False)
class ConfidenceSet:
    """Laws that agree with the points of a curve, by family; ``best`` is the law that the evidence favours.

    ``span`` has the logarithms of the smallest and the largest measured size.
    """

    parts: tuple[FamilyLaws, ...]
    best: FamilyFit
    span: tuple[float, float]

    @property
    def families(self) -> tuple[Family, ...]:
        """The families that the evidence does not reject."""
        return tuple(part.family for part in self.parts)

    def log_steps(self, batch_size: float | Array) -> Array:
        """Return log steps of every law at these batch sizes: one row per law, infinite where a law has none."""
        return np.concatenate([part.log_steps(batch_size) for part in self.parts])

    def best_log_steps(self, batch_size: float | Array) -> Array:
        """Return log steps of the best law."""
        return np.log(self.best.steps(batch_size))

    def steps_range(self, batch_size: float) -> tuple[float, float]:
        """Return the interval of the steps to result at any batch size, measured or not."""
        centre, slack = self.log_steps(batch_size)[:, 0], np.concatenate([part.slack for part in self.parts])
        return math.exp(float((centre - slack).min())), math.exp(float((centre + slack).max()))

    def critical_range(self) -> tuple[float | None, float | None]:
        """Return the interval of B_crit over the laws that bend; None at an end that the points do not bound."""
        return self._range(log_critical, FAR)

    def optimal_range(self) -> tuple[float | None, float | None]:
        """Return the interval of B_opt within the measured sizes; None at an end that lies outside of them.

        Laws without a left branch bound nothing: they were not asked where it begins.
        """
        if not any(part.family.has_left_branch for part in self.parts):
            return None, None
        return self._range(log_optimal, 0.0)

    def _range(self, quantity: Callable[[Family, Array], Array], beyond: float) -> tuple[float | None, float | None]:
        least, most = self.span[0] - beyond, self.span[1] + beyond
        logs = np.concatenate([quantity(part.family, part.laws) for part in self.parts])
        logs = np.clip(logs[~np.isnan(logs)], least, most)
        if not logs.size:
            return None, None
        low, high = float(logs.min()), float(logs.max())
        return None if low <= least else math.exp(low), None if high >= most else math.exp(high)


def find_confidence_set(sizes: Array, steps: Array, noise: Noise, level: float, fit: ScalingFit) -> ConfidenceSet:
    """Return the confidence set of a curve with at least three sizes.

    A law belongs to it if its weighted sum of squares is at most Q + s² F, Q the least sum of its family, F the
    quantile of the F distribution with 1 and as many degrees of freedom as ``s²`` has. The noise determines s².

    Args:
        sizes: The measured sizes, growing.
        steps: Their steps to result.
        noise: The noise of log steps.
        level: The confidence level.
        fit: The families of the curve, with those that the evidence does not reject.
    """
    log_sizes, log_steps = np.log(sizes), np.log(steps)
    parts = tuple(_family_laws(each, log_sizes, log_steps, noise, level) for each in fit.allowed)
    if fit.best.family is Family.HYPERBOLA:
        parts = tuple(_with_hyperbola(part, fit.best) for part in parts)
    return ConfidenceSet(parts, fit.best, (float(log_sizes[0]), float(log_sizes[-1])))


def _with_hyperbola(part: FamilyLaws, best: FamilyFit) -> FamilyLaws:
    """Return the laws of the sharp family with its member, whatever the grid missed."""
    if part.family is not Family.SHARP:
        return part
    laws = np.concatenate([part.laws, [[best.law[0], 0.0]]])
    return FamilyLaws(part.family, laws, np.append(part.log_scale, best.log_scale), np.append(part.slack, 0.0))


def _family_laws(fit: FamilyFit, log_sizes: Array, log_steps: Array, noise: Noise, level: float) -> FamilyLaws:
    """Return the laws of one family within the bound: a grid, drawn together around those inside, and the rim."""
    weights = noise.weights
    low, high = bounds(fit.family, log_sizes)
    top = np.array(fit.law)
    free = float(len(log_sizes) - fit.family.parameters)
    if fit.family is Family.LEFT_BRANCH and free < 3:
        free -= 0.5  # five points do not tell it from ``iso_loss``, which has a parameter more
    bound = noise.bound(fit.squares, free, level)
    cube = np.stack(
        [axis.ravel() for axis in np.meshgrid(*(np.linspace(-1, 1, n) for n in _TICKS[len(top)]), indexing="ij")],
        axis=1,
    )
    cell = 2 / (np.array(_TICKS[len(top)]) - 1)
    axes, centre, reach = np.eye(len(top)), (low + high) / 2, (high - low) / 2
    rotated = False
    for _ in range(_ROUNDS):
        laws = np.concatenate([top[None], np.clip(centre + (cube * reach) @ axes, low, high)])
        squares, log_scale = sum_of_squares(fit.family, laws, log_sizes, log_steps, weights)
        inside = squares <= bound
        inside[0] = True
        if inside.sum() >= _ENOUGH and (rotated or len(top) == 1):
            break
        members, before = laws[inside], axes
        if len(members) >= _ENOUGH_FOR_AXES:
            axes, rotated = np.linalg.svd(members - members.mean(axis=0), full_matrices=False)[2], True
        spare = np.abs(axes @ before.T) @ (cell * reach)  # a cell of this grid on every side
        along = (members - top) @ axes.T
        least, most = along.min(axis=0) - spare, along.max(axis=0) + spare
        centre, reach = top + ((least + most) / 2) @ axes, (most - least) / 2
    rim = _rim(fit, laws[squares < bound + 3 * (bound - fit.squares)], bound, log_sizes, log_steps, weights)
    laws = np.concatenate([laws[inside], rim])
    squares, log_scale = sum_of_squares(fit.family, laws, log_sizes, log_steps, weights)
    slack = np.sqrt(np.maximum(bound - squares, 0.0) / weights.sum())
    return FamilyLaws(fit.family, laws, log_scale, slack)


def _rim(fit: FamilyFit, laws: Array, bound: float, log_sizes: Array, log_steps: Array, weights: Array) -> Array:
    """Return laws at the rim of the set, in the directions of these from the best: the rim determines every range."""
    low, high = bounds(fit.family, log_sizes)
    top, room = np.array(fit.law), bound - fit.squares
    for _ in range(_RIM_ROUNDS):
        excess = sum_of_squares(fit.family, laws, log_sizes, log_steps, weights)[0] - fit.squares
        stretch = np.sqrt(room / np.maximum(excess, 1e-3 * room))  # squares grow with the square of the distance
        laws = np.clip(top + (laws - top) * np.minimum(stretch, 3.0)[:, None], low, high)
    squares = sum_of_squares(fit.family, laws, log_sizes, log_steps, weights)[0]
    return laws[squares <= fit.squares + 1.02 * room]
