"""The scaling law of a curve: least squares of log steps in every family, and the family that the evidence favours.

The best family gives the headline numbers. Intervals come from ``confidence_set``, over all families that the evidence
does not reject. ``families`` has the laws themselves.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array, curve_points
from batchscale.analysis.evidence import judge_families
from batchscale.analysis.families import Family
from batchscale.analysis.least_squares import FamilyFit, fit_family
from batchscale.analysis.noise import Noise, residual_noise
from batchscale.errors import AnalysisError

FEWEST_POINTS = 3
BEND = 0.3  # a best law that leaves an asymptote by less than this share at its end has its bend outside the points


@dataclass(frozen=True)
class ScalingFit:
    """All families that were fitted to one curve; ``best`` is favoured by the evidence."""

    best: FamilyFit
    families: tuple[FamilyFit, ...]
    allowed: tuple[FamilyFit, ...]
    points: int

    @property
    def s_min(self) -> float | None:
        """The fewest steps to result, however large the batch, by the best family."""
        return self.best.s_min

    @property
    def b_crit(self) -> float | None:
        """The critical batch size, by the best family."""
        return self.best.b_crit

    @property
    def e_min(self) -> float | None:
        """The fewest examples to result, by the best family."""
        return self.best.e_min

    @property
    def rms_log(self) -> float:
        """Root mean square of the residuals of log steps, by the best family."""
        return self.best.rms_log


def fit_scaling(curve: pl.DataFrame) -> ScalingFit:
    """Return the scaling law of a curve (columns ``batch_size`` and ``steps``; rows with null steps are left out).

    >>> sizes = [1, 4, 16, 64, 256]
    >>> fit = fit_scaling(pl.DataFrame({"batch_size": sizes, "steps": [100 * (1 + 32 / b) for b in sizes]}))
    >>> round(fit.s_min, 3), round(fit.b_crit, 3), fit.best.family.value
    (100.0, 32.0, 'hyperbola')

    Raises:
        AnalysisError: There are fewer than three points, or the best law has its bend far outside of them.
    """
    sizes, steps = curve_points(curve)
    if len(sizes) < FEWEST_POINTS:
        raise AnalysisError(
            f"A scaling fit needs the steps to result at {FEWEST_POINTS} batch sizes or more. Found {len(sizes)}; "
            "measure more batch sizes, or choose a goal that more of them reach."
        )
    fit = fit_families(np.log(sizes), np.log(steps), residual_noise(len(sizes)))
    check_bend(fit.best, sizes)
    return fit


def fit_families(log_sizes: Array, log_steps: Array, noise: Noise) -> ScalingFit:
    """Return the least squares of every family that the points can judge, the best, and those not rejected."""
    count = len(log_sizes)
    fits = [
        fit_family(family, log_sizes, log_steps, noise.weights)
        for family in Family
        if family in (Family.HYPERBOLA, Family.SHARP) or family.parameters < count - (not noise.is_known)
    ]
    best, allowed = judge_families(fits, count, noise)
    return ScalingFit(best, tuple(fits), allowed, count)


def check_bend(fit: FamilyFit, sizes: Array) -> None:
    """Raise AnalysisError if a law has its bend outside the points, or has none."""
    if fit.b_crit is None:
        raise AnalysisError(
            f"A power law describes these points: steps fall as the batch size to the power -{fit.law[0]:.2f} at all "
            "sizes measured, without a bend. There is no critical batch size between them."
        )
    smallest, largest = float(sizes[0]), float(sizes[-1])
    if largest / fit.b_crit < BEND:
        raise AnalysisError(
            f"The points lie before the bend: the fitted curve bends well beyond batch size {largest:,.0f}, the "
            "largest measured. Measure larger sizes."
        )
    if fit.b_crit / smallest < BEND:
        raise AnalysisError(
            f"The points lie behind the bend: the fitted curve bends well below batch size {smallest:,.0f}, the "
            "smallest measured. Measure smaller sizes."
        )
