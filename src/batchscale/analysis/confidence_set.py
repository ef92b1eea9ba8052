"""The confidence set of a curve: all scaling laws that agree with its points. Intervals of boundaries come from it.

A law is S(B) = S_min (1 + (B_crit/B)^k)^(1/k) with k free between 1 (the hyperbola) and a cliff, so that no choice of a
family narrows an interval. The set has every law whose weighted sum of squares lies within Student's bound of the
least. The interval of anything that a law determines (B_crit, the useful size, the examples at a size, the fall in
the last doubling, the steps anywhere) is the range of that thing over the set: its profile interval. Since all
intervals come from one set, no two of them contradict each other. docs/analysis.md has the measured coverage.
"""

import math
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.families import FAR, SHARPEST, log_bend
from batchscale.analysis.noise import Noise

FEWEST_SIZES = 3

_FREE = 3  # S_min, B_crit, k
_ZOOMS = 14
_TICKS_B, _TICKS_K = 81, 25
_ENOUGH = 400  # laws of a grid inside the set, which show its range to a few hundredths


@dataclass(frozen=True, eq=False)
class ConfidenceSet:
    """Laws that agree with the points of a curve: log B_crit, log k, log S_min and the slack of log S_min.

    ``best`` is the index of the law with the least sum of squares. ``open_low`` and ``open_high`` are True if the set
    continues beyond the range in which B_crit was searched.
    """

    log_b: Array
    log_k: Array
    log_s_min: Array
    slack: Array
    best: int
    open_low: bool
    open_high: bool

    def log_steps(self, batch_size: float | Array) -> Array:
        """Return log steps of every law at these batch sizes: one row per law."""
        logs = np.log(np.atleast_1d(np.asarray(batch_size, dtype=np.float64)))
        bends = log_bend(self.log_b[:, None] - logs, np.exp(self.log_k)[:, None])
        return np.asarray(self.log_s_min[:, None] + bends)

    def best_log_steps(self, batch_size: float | Array) -> Array:
        """Return log steps of the law with the least sum of squares."""
        logs = np.log(np.atleast_1d(np.asarray(batch_size, dtype=np.float64)))
        bend = log_bend(self.log_b[self.best] - logs, math.exp(self.log_k[self.best]))
        return np.asarray(self.log_s_min[self.best] + bend)

    def steps_range(self, batch_size: float) -> tuple[float, float]:
        """Return the interval of the steps to result at any batch size, measured or not."""
        centre = self.log_steps(batch_size)[:, 0]
        return math.exp(float((centre - self.slack).min())), math.exp(float((centre + self.slack).max()))

    def critical_range(self) -> tuple[float | None, float | None]:
        """Return the interval of B_crit; None at an end that the points do not bound."""
        low, high = math.exp(float(self.log_b.min())), math.exp(float(self.log_b.max()))
        return None if self.open_low else low, None if self.open_high else high


def find_confidence_set(sizes: Array, steps: Array, noise: Noise, level: float) -> ConfidenceSet:
    """Return the confidence set of a curve with at least three sizes.

    A law belongs to it if its weighted sum of squares is at most Q + s² F, Q the least sum, F the quantile of the F
    distribution with 1 and as many degrees of freedom as ``s²`` has. The noise determines s².
    """
    log_sizes, log_steps = np.log(sizes), np.log(steps)
    weights = noise.weights
    box = _Box(log_sizes[0] - FAR, log_sizes[-1] + FAR, 0.0, math.log(SHARPEST))
    whole = box
    least = math.inf
    for _ in range(_ZOOMS):
        log_b, log_k, log_s, squares = _grid(box, log_sizes, log_steps, weights)
        least = min(least, float(squares.min()))
        bound = noise.bound(least, len(sizes) - _FREE, level)
        inside = squares <= bound
        if not inside.any():  # the least sum was met on an earlier, coarser grid
            inside = squares <= squares.min()
        if inside.sum() >= _ENOUGH:
            break
        narrower = box.around(log_b[inside], log_k[inside])
        if narrower == box:
            break
        box = narrower
    room = np.sqrt(np.maximum(bound - squares[inside], 0.0) / weights.sum())
    b = log_b[inside]
    edge = 1.5 * (whole.high_b - whole.low_b) / _TICKS_B
    return ConfidenceSet(
        b, log_k[inside], log_s[inside], room, int(np.argmin(squares[inside])),
        bool(b.min() < whole.low_b + edge), bool(b.max() > whole.high_b - edge),
    )  # fmt: skip


@dataclass(frozen=True)
class _Box:
    low_b: float
    high_b: float
    low_k: float
    high_k: float

    def around(self, log_b: Array, log_k: Array) -> "_Box":
        """Return the part of this box around these laws, with a cell to spare on every side."""
        cell_b, cell_k = (self.high_b - self.low_b) / (_TICKS_B - 1), (self.high_k - self.low_k) / (_TICKS_K - 1)
        return _Box(
            max(self.low_b, float(log_b.min()) - cell_b),
            min(self.high_b, float(log_b.max()) + cell_b),
            max(self.low_k, float(log_k.min()) - cell_k),
            min(self.high_k, float(log_k.max()) + cell_k),
        )


def _grid(box: _Box, log_sizes: Array, log_steps: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
    """Return log B_crit, log k, the best log S_min and the weighted sum of squares of a grid of laws."""
    log_b, log_k = (
        axis.ravel()
        for axis in np.meshgrid(
            np.linspace(box.low_b, box.high_b, _TICKS_B), np.linspace(box.low_k, box.high_k, _TICKS_K), indexing="ij"
        )
    )
    rest = log_steps - log_bend(log_b[:, None] - log_sizes, np.exp(log_k)[:, None])
    log_s = rest @ weights / weights.sum()
    squares = ((rest - log_s[:, None]) ** 2) @ weights
    return log_b, log_k, np.asarray(log_s), np.asarray(squares)
