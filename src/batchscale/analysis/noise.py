"""The noise of a curve's points, in logarithms of steps: from the trials of a search, from repeated runs, or residuals.

Owns how far a measured point may lie off the truth, and the degrees of freedom of that estimate; ``confidence_set``
derives the boundaries from it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import StudyPoint, noise_variance, pool_exponents
from batchscale.analysis.quantiles import student_quantile

FLOOR = 1e-3  # steps to result are never more exact than a thousandth
ASSUMED = 0.2  # the noise of three bare points, which give no estimate of their own
_TYPICAL = 0.1  # noise that the evaluation spacing of bare points is weighed against
MOST_FREEDOM = 8.0  # the most degrees of freedom that noise from trials or runs weighs against the misfit


class NoiseSource(StrEnum):
    """The source of the interval of a boundary."""

    TRIALS = "trials"
    RUNS = "runs"
    SEEDS = "seeds"
    RESIDUALS = "residuals"
    ASSUMED = "assumed"


@dataclass(frozen=True, eq=False)
class Noise:
    """Variances of log steps (relative ones, for residuals), and their degrees of freedom.

    ``least_scale`` is the least factor of relative variances.
    """

    source: NoiseSource
    variances: Array
    freedom: float
    least_scale: float = FLOOR**2

    @property
    def is_known(self) -> bool:
        """True if trials, runs or seeds determine the noise, whatever the law."""
        return self.source not in (NoiseSource.RESIDUALS, NoiseSource.ASSUMED)

    @property
    def weights(self) -> Array:
        """The weight of every point in a sum of squares."""
        return np.asarray(1.0 / self.variances)

    def bound(self, least: float, free: float, level: float) -> float:
        """Return the sum of squares up to which a law belongs to the set.

        Args:
            least: The least sum of squares.
            free: Points less parameters.
            level: The confidence level.
        """
        scale, freedom = self._scale(least, free)
        return least + scale * student_quantile(freedom, (1 + level) / 2) ** 2  # the quantile of F with 1 and freedom

    def reach(self, least: float, free: float, level: float) -> Array:
        """Return how far every point may lie off the truth in logarithms: Student's quantile times its error."""
        scale, freedom = self._scale(least, free)
        return np.asarray(student_quantile(freedom, (1 + level) / 2) * np.sqrt(scale * self.variances))

    def _scale(self, least: float, free: float) -> tuple[float, float]:
        """Return the factor of the variances and its degrees of freedom."""
        if self.source is NoiseSource.ASSUMED:
            return 1.0, 1e6
        if self.source is NoiseSource.RESIDUALS:
            return max(least / max(free, 1), self.least_scale), float(max(free, 1))
        # A misfit beyond the noise widens the set; a lucky fit does not narrow it.
        weight = min(self.freedom, MOST_FREEDOM)
        return max(1.0, (weight + least) / (weight + max(free, 0))), self.freedom + max(free, 0)


def residual_noise(count: int) -> Noise:
    """Return the noise of bare points: from their residuals, or assumed for three points, which have none."""
    if count <= 3:
        return Noise(NoiseSource.ASSUMED, np.full(count, ASSUMED**2), math.inf)
    return Noise(NoiseSource.RESIDUALS, np.ones(count), 0.0)


def run_noise(groups: list[Array]) -> Noise:
    """Return the noise of the means of repeated runs, from their spread within a batch size, pooled over batch sizes.

    With fewer than two runs more than sizes there is no spread, and residuals are used.
    """
    counts = np.array([float(len(group)) for group in groups])
    freedom = float((counts - 1).sum())
    if freedom < 2:
        return residual_noise(len(groups))
    spread = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in groups) / freedom
    return Noise(NoiseSource.RUNS, np.maximum(spread, FLOOR**2) / counts, freedom)


def run_intervals(groups: list[Array], level: float) -> list[tuple[float | None, float | None]]:
    """Return Student's interval of the geometric mean of the runs at every size, their spread pooled over sizes.

    None where the spread is unknown (see ``run_noise``).
    """
    noise = run_noise(groups)
    if noise.source is not NoiseSource.RUNS:
        return [(None, None)] * len(groups)
    reach = student_quantile(noise.freedom, (1 + level) / 2) * np.sqrt(noise.variances)
    centres = [float(logs.mean()) for logs in groups]
    return [(math.exp(c - r), math.exp(c + r)) for c, r in zip(centres, reach.tolist(), strict=True)]


def trial_noise(points: Sequence[StudyPoint]) -> Noise:
    """Return the noise of steps to result, from the tails of the searches behind them and from the evaluation spacing.

    A study with one finisher gets the mean of the others. If fewer than half have two, residuals are used.
    """
    studies = [point for point in points if point.finishers.has_interval]
    if 2 * len(studies) < len(points) or not studies:
        return coarse_noise(residual_noise(len(points)), *_shares(points))
    weights = pool_exponents([point.finishers for point in points])
    counts = np.array([float(len(point.finishers.lowest)) for point in studies])
    estimates = np.maximum([noise_variance(point.finishers, weights) for point in studies], FLOOR**2)
    # The log of a squared sum of m exponential spacings varies by about 4/(m - 1/2).
    drawn = shrink(np.asarray(estimates), float((4 / (counts - 1.5)).mean()))
    by_size = {point.batch_size: value for point, value in zip(studies, drawn, strict=True)}
    variances = np.array([by_size.get(point.batch_size, float(drawn.mean())) for point in points])
    return coarse_noise(Noise(NoiseSource.TRIALS, variances, float((counts - 1).sum())), *_shares(points))


def coarse_noise(noise: Noise, *shares: float) -> Noise:
    """Return the noise with that of the evaluation spacing, given as a share of the steps of every point."""
    extra = np.array([resolution_variance(min(share, 1.0)) for share in shares])
    if not extra.any():
        return noise
    if noise.source is not NoiseSource.RESIDUALS:
        return Noise(noise.source, noise.variances + extra, noise.freedom)
    # Residuals have no scale of their own before the fit: only how much less coarse points weigh, and how exact the
    # coarsest can be at best.
    variances = noise.variances + extra / _TYPICAL**2
    return Noise(noise.source, variances, noise.freedom, max(FLOOR**2, float((extra / variances).max())))


def _shares(points: Sequence[StudyPoint]) -> list[float]:
    return [point.spacing / point.steps for point in points]


def shrink(variances: Array, doubt: float) -> Array:
    """Return variances drawn together as far as their differences are no more than their own errors.

    ``doubt`` is the variance of the logarithm of one estimate. Weights from raw estimates would trust most those
    points whose noise was underestimated.
    """
    logs = np.log(variances)
    seen = float(logs.var(ddof=1)) if len(logs) > 1 else 0.0
    share = max(0.0, 1.0 - doubt / seen) if seen > 0 else 0.0
    centre = math.log(float(variances.mean()))
    return np.asarray(np.exp(centre + share * (logs - centre)))


@lru_cache(maxsize=4096)
def resolution_variance(share: float) -> float:
    """Return the mean square of log(true/measured steps) if the truth lies in the last ``share`` of the steps.

    ∫ log² over (1-r, 1], divided by r: 2 for a goal that the first measurement already reached, r²/3 for small r.

    >>> round(resolution_variance(1.0), 9), round(resolution_variance(0.03) / 0.03**2, 2)
    (2.0, 0.34)
    """
    if share <= 0:
        return 0.0
    below = 1.0 - min(share, 1.0)
    rest = below * (math.log(below) ** 2 - 2 * math.log(below) + 2) if below > 0 else 0.0
    return max((2.0 - rest) / min(share, 1.0), 0.0)
