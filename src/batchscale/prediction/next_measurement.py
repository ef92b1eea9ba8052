"""The measurement that narrows an interval most for its cost, over the laws that the points of a curve allow.

Let Q be the sum of squares of a law, W the sum of the weights behind the points, m the law's log steps at a size. A
point of variance v measured there adds d²/(v + 1/W) to Q, d its distance from m: the free scale of the law takes up
the rest. If law T is true, the point lies at m_T on average, so that the laws L with Q_L + (m_L - m_T)²/(v + 1/W)
within the bound remain, and the range of the asked-for quantity over them is the interval to expect. The expected
width is its mean over the laws T of the set, each weighted by its likelihood. More trials at every size divide all
variances by a factor r: the laws with an excess of at most 1/r of the bound remain. Both are closed forms; a test
compares them with simulated measurements.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.confidence_set import ConfidenceSet
from batchscale.analysis.curves import Array
from batchscale.analysis.noise import Noise
from batchscale.analysis.quantiles import student_quantile
from batchscale.prediction.quantities import OpenQuestion, Spread

_TRUTHS = 64  # laws that are taken for the truth in turn, evenly through the set
_NARROWEST = 1e-3  # a width of log sizes below which nothing is gained


@dataclass(frozen=True)
class Candidate:
    """A measurement that may come next: a new batch size, or more trials at every measured size (``batch_size`` None).

    ``variance`` is that of log steps at the new size, or the factor of all variances with more trials. ``cost`` is
    in the unit of the budget: trial-steps, examples or seconds.
    """

    batch_size: int | None
    trials: int
    cost: float
    variance: float


@dataclass(frozen=True)
class Ranked:
    """A candidate with the factor between the ends of the interval to expect after it."""

    candidate: Candidate
    factor_before: float
    factor_after: float

    @property
    def gain(self) -> float:
        """The logarithm of the factor that is saved, per unit of cost."""
        return math.log(self.factor_before / self.factor_after) / max(self.candidate.cost, 1e-300)


def rank_measurements(
    laws: ConfidenceSet, noise: Noise, question: OpenQuestion, candidates: Sequence[Candidate]
) -> list[Ranked]:
    """Return the candidates with what to expect of each, the one that saves most for its cost first.

    Of equal ones the cheaper comes first, then the larger batch size: the order is a function of the arguments alone.
    """
    spread = question.spread(laws)
    before = spread.width()
    excess, chances = _law_weights(laws, noise)
    ranked = []
    for candidate in candidates:
        if candidate.batch_size is None:
            after = spread.width(excess <= candidate.variance)
        else:
            logs = laws.log_steps(float(candidate.batch_size))[:, 0]
            bound = _bound(laws, noise)
            distance = (candidate.variance + 1 / float(noise.weights.sum())) * bound
            after = _expected_width(spread, excess, chances, logs, distance)
        after = min(max(after, _NARROWEST), max(before, _NARROWEST))
        ranked.append(Ranked(candidate, math.exp(max(before, _NARROWEST)), math.exp(after)))
    return sorted(ranked, key=lambda each: (-each.gain, each.candidate.cost, -(each.candidate.batch_size or 0)))


def _bound(laws: ConfidenceSet, noise: Noise) -> float:
    """Return the excess of the sum of squares up to which laws belong to the set."""
    return max(float(laws.parts[0].slack[0]) ** 2 * float(noise.weights.sum()), 1e-12)


def _law_weights(laws: ConfidenceSet, noise: Noise) -> tuple[Array, Array]:
    """Return the excess of every law's sum of squares as a share of the bound, and its likelihood (sum 1).

    A law's slack says how far its scale may move within the bound, so that its excess follows from it.
    """
    parts = []
    for part in laws.parts:
        most = max(float(part.slack.max()), 1e-12)
        parts.append(np.clip(1 - (part.slack / most) ** 2, 0.0, 1.0))
    excess = np.concatenate(parts)
    level = student_quantile(max(noise.freedom, 2.0), 0.95) ** 2
    counts = np.concatenate([np.full(len(part.slack), 1 / len(part.slack)) for part in laws.parts])
    chances = counts * np.exp(-excess * level / 2)
    return excess, np.asarray(chances / chances.sum())


def _expected_width(spread: Spread, excess: Array, chances: Array, logs: Array, most: float) -> float:
    """Return the mean width over the laws that a point near each law would leave.

    ``most`` is the square of the distance from the point at which a law of no excess is left out.
    """
    order = np.argsort(logs, kind="stable")
    places = np.searchsorted(np.cumsum(chances[order]), (np.arange(_TRUTHS) + 0.5) / _TRUTHS)
    places, counts = np.unique(places.clip(max=len(order) - 1), return_counts=True)
    truths = order[places]
    with np.errstate(invalid="ignore"):
        distance = (logs[None, :] - logs[truths][:, None]) ** 2
    distance = np.where(np.isnan(distance), 0.0, distance)  # both without steps there: they stay together
    left = excess[None, :] + distance / most <= 1.0
    left[np.arange(len(truths)), truths] = True
    return float(spread.widths(left, truths) @ counts / counts.sum())
