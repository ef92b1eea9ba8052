"""The optimal batch size of a curve (that of fewest examples), and the band of sizes that cost little more."""

from dataclasses import dataclass

import numpy as np

from batchscale.analysis.confidence_set import ConfidenceSet
from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.least_squares import FamilyFit

SMALLEST_IS_CHEAPEST = "the smallest batch size measured needs the fewest examples; a still smaller one may need fewer"
LARGEST_IS_CHEAPEST = "examples still fall at the largest batch size measured; a still larger one may need fewer"
NOT_SHOWN = "the points do not show that examples rise again at small batch sizes: noise may explain it"
NO_LAW = "no fitted curve shows where examples are fewest"

_BETWEEN = 400  # sizes at which a law is read for its band


@dataclass(frozen=True)
class OptimalSize:
    """The size of fewest examples.

    Attributes:
        batch_size: B_opt by the best law and its interval; ``value`` None where the cheapest size is the smallest or
            the largest measured, or not determined.
        reason: The reason for a missing value.
        band: Between these sizes, within the measured ones, examples by the best law stay within the threshold of its
            fewest; by the points, where there is no law.
    """

    batch_size: Estimate
    reason: str | None
    band: tuple[float, float]


def measured_band(sizes: Array, steps: Array, tolerance: float) -> tuple[float, float]:
    """Return the measured sizes around the cheapest up to which no point needs more than the tolerance beyond it."""
    examples = sizes * steps
    best = int(np.argmin(examples))
    outside = np.flatnonzero(examples > examples[best] * (1 + tolerance) * (1 + 1e-12))
    low = int(outside[outside < best].max(initial=-1)) + 1
    high = int(outside[outside > best].min(initial=len(sizes))) - 1
    return float(sizes[low]), float(sizes[high])


def law_band(fit: FamilyFit, sizes: Array, tolerance: float) -> tuple[float, float]:
    """Return the sizes between the smallest and the largest where a law's examples are close to its fewest there."""
    between = np.geomspace(sizes[0], sizes[-1], _BETWEEN)
    examples = between * fit.steps(between)
    within = between[examples <= examples.min() * (1 + tolerance)]
    return float(within[0]), float(within[-1])


def find_optimal(laws: ConfidenceSet | None, sizes: Array, steps: Array, tolerance: float) -> OptimalSize:
    """Return the optimal batch size of a curve by its best law; by its points where no law describes them."""
    if laws is None:
        return OptimalSize(Estimate(), NO_LAW, measured_band(sizes, steps, tolerance))
    low, high = laws.optimal_range()
    value, band = laws.best.b_opt, law_band(laws.best, sizes, tolerance)
    if value is not None and sizes[0] < value < sizes[-1]:
        return OptimalSize(Estimate(value, low, high), None, band)
    cheapest = int(np.argmin(sizes * steps))
    reason = {0: SMALLEST_IS_CHEAPEST, len(sizes) - 1: LARGEST_IS_CHEAPEST}.get(cheapest, NOT_SHOWN)
    return OptimalSize(Estimate(None, low, high), reason, band)
