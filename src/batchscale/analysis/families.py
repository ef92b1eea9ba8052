"""The families of scaling laws: log steps, critical and optimal batch size of many laws at once.

A law has a scale and the coordinates of its family; one row of an array is one law:

======================  =====================================================  =======================
family                  S(B)                                                   coordinates
======================  =====================================================  =======================
``hyperbola``           S_min (1 + B_crit/B)                                   log B_crit
``sharp``               S_min (1 + (B_crit/B)^k)^(1/k), k >= 1                 log B_crit, log k
``left_branch``         S_min (1 + b/B + b·B_left/B²)                          log b, log B_left
``iso_loss``            S_min (1 - (B_min/B)^β)^(-1/γ)                         log B_crit, log B_opt, log β/γ
``power``               c B^-a                                                 a
======================  =====================================================  =======================

The critical batch size has one meaning in all of them: the size where log steps fall by half of what log batch size
grows (the slope is -1/2), midway between perfect scaling (-1) and no gain (0). The optimal one has the fewest examples:
there the slope is -1. A power law has one slope everywhere, and neither of the two.
"""

import math
from enum import StrEnum

import numpy as np

from batchscale.analysis.curves import Array

SHARPEST = 64.0  # steps at the corner lie 2^(1/64) - 1 = 1 % above both asymptotes: a cliff to any measurement
FAR = 4.0  # a log B_crit this far (a factor 55) outside the measured sizes is not bounded by them
FARTHEST = 8.0  # log B_crit is searched this far outside: there laws are straight lines
EXPONENTS = (0.05, 4.0)  # of β; those of public curves lie between 0.1 and 1
RATIOS = (0.1, 10.0)  # of β/γ
STEEPEST = 3.0  # exponent of a power law


class Family(StrEnum):
    """A kind of law of steps against batch size."""

    HYPERBOLA = "hyperbola"
    SHARP = "sharp"
    LEFT_BRANCH = "left_branch"
    ISO_LOSS = "iso_loss"
    POWER = "power"

    @property
    def parameters(self) -> int:
        """The number of free parameters, the scale among them."""
        return {Family.HYPERBOLA: 2, Family.POWER: 2, Family.ISO_LOSS: 4}.get(self, 3)

    @property
    def has_left_branch(self) -> bool:
        """True if examples to result rise again at small batch sizes."""
        return self in (Family.LEFT_BRANCH, Family.ISO_LOSS)


def bounds(family: Family, log_sizes: Array) -> tuple[Array, Array]:
    """Return the least and the greatest coordinates of a family's laws for a curve with these sizes."""
    low, high = float(log_sizes[0]), float(log_sizes[-1])
    ends = {
        Family.HYPERBOLA: [(low - FARTHEST, high + FARTHEST)],
        Family.SHARP: [(low - FARTHEST, high + FARTHEST), (0.0, math.log(SHARPEST))],
        Family.LEFT_BRANCH: [(low - FARTHEST, high + FARTHEST), (low - FAR, high)],
        Family.ISO_LOSS: [
            (low - FARTHEST, high + FARTHEST),
            (low - FARTHEST, high + FARTHEST),
            (math.log(RATIOS[0]), math.log(RATIOS[1])),
        ],
        Family.POWER: [(0.0, STEEPEST)],
    }[family]
    return np.array([low for low, _ in ends]), np.array([high for _, high in ends])


def log_bend(log_ratio: Array, sharpness: float | Array) -> Array:
    """Return the logarithm of (1 + r^k)^(1/k) for log r: the law over S_min, safe for any ratio.

    >>> float(log_bend(np.array(0.0), 1.0)) == math.log(2)
    True
    """
    return np.asarray(np.maximum(log_ratio, 0.0) + np.log1p(np.exp(-sharpness * np.abs(log_ratio))) / sharpness)


def log_curves(family: Family, laws: Array, log_sizes: Array) -> Array:
    """Return log steps over the scale of every law at these sizes, one row per law; infinite where it has none."""
    first = laws[:, :1] - log_sizes
    if family is Family.HYPERBOLA:
        return np.asarray(np.log1p(np.exp(first)))
    if family is Family.SHARP:
        return log_bend(first, np.exp(laws[:, 1:2]))
    if family is Family.LEFT_BRANCH:
        return np.asarray(np.log1p(np.exp(first) * (1.0 + np.exp(laws[:, 1:2] - log_sizes))))
    if family is Family.ISO_LOSS:
        beta, ratio = (values[:, None] for values in iso_loss_exponents(laws))
        share = np.exp(np.minimum(beta * first - np.log1p(2 * ratio), 0.0))  # (B_min/B)^β
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log1p(-share) * ratio / beta)
    return np.asarray(-laws[:, :1] * log_sizes)


def iso_loss_exponents(laws: Array) -> tuple[Array, Array]:
    """Return β and β/γ of iso-loss laws.

    With q = β/γ the slope is -q x/(1 - x), x = (B_min/B)^β: -1/2 at x = 1/(1 + 2q), -1 at x = 1/(1 + q), hence
    (B_crit/B_opt)^β = (1 + 2q)/(1 + q). β is held within its bounds, whatever the coordinates.
    """
    ratio = np.exp(laws[:, 2])
    apart = np.maximum(laws[:, 0] - laws[:, 1], 1e-6)
    return np.clip((np.log1p(2 * ratio) - np.log1p(ratio)) / apart, *EXPONENTS), ratio


def log_critical(family: Family, laws: Array) -> Array:
    """Return the logarithm of B_crit of every law; NaN for a power law."""
    if family is Family.LEFT_BRANCH:
        # The slope is -1/2 where B² = b B + 3 b B_left.
        return np.asarray(laws[:, 0] + np.log((1 + np.sqrt(1 + 12 * np.exp(laws[:, 1] - laws[:, 0]))) / 2))
    if family is Family.POWER:
        return np.full(len(laws), np.nan)
    return np.asarray(laws[:, 0])


def log_optimal(family: Family, laws: Array) -> Array:
    """Return the log of the size of fewest examples; -inf where smaller is always cheaper, inf where larger is."""
    if family is Family.LEFT_BRANCH:
        return np.asarray((laws[:, 0] + laws[:, 1]) / 2)
    if family is Family.ISO_LOSS:
        beta, ratio = iso_loss_exponents(laws)
        return np.asarray(laws[:, 0] - (np.log1p(2 * ratio) - np.log1p(ratio)) / beta)
    if family is Family.POWER:
        return np.asarray(np.where(laws[:, 0] > 1.0, np.inf, -np.inf))
    return np.full(len(laws), -np.inf)
