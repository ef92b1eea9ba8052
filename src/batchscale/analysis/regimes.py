"""The three regimes of a curve, each boundary with its own definition (docs/analysis.md has the formulas).

Perfect scaling, diminishing returns, maximal data parallelism: the paper's words (section 4.1). These functions look
at the points alone; how sure their answers are is in ``facts``.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array, curve_points
from batchscale.analysis.scaling import ScalingFit, fit_scaling
from batchscale.errors import AnalysisError


class Baseline(StrEnum):
    """Which point the line of perfect scaling is drawn through: that with the fewest examples, or the first."""

    ROBUST = "robust"
    FIRST = "first"


@dataclass(frozen=True)
class Thresholds:
    """What the boundaries are judged by.

    Attributes:
        perfect: τ of ``perfect_scaling_end``: how far above the line a point may lie.
        useful: how far above the fewest steps the maximum useful batch size may lie.
        falling: a fall of the steps by more than this in the last doubling says that the end is not in sight (unless
            the useful size is at most a quarter of the largest measured: then the fall came before).
        overhead: τ of ``overhead_batch_size``: how many more examples than the fewest.
    """

    perfect: float = 0.3
    useful: float = 0.2
    falling: float = 0.1
    overhead: float = 0.2

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value > 0) or (name == "falling" and value >= 1):
                raise AnalysisError(f"The threshold '{name}' must be a share above 0. Found {value:g}.")


DEFAULT_THRESHOLDS = Thresholds()
FAR_ENOUGH = 4  # a plateau measured over this factor has an end of the fall before it, whatever its last pair does


@dataclass(frozen=True)
class Regimes:
    """The boundaries of a curve.

    ``max_useful_reached`` False means that the points do not show the end of the fall: ``max_useful_batch_size`` is
    the largest size then, and the answer is "at least". ``fit`` is None where the best law has its bend outside the
    points, and ``fit_refusal`` says on which side.
    """

    baseline: Baseline
    baseline_examples: float
    perfect_scaling_end: int
    max_useful_batch_size: int
    max_useful_reached: bool
    overhead_batch_size: int
    fit: ScalingFit | None
    fit_refusal: str | None

    @property
    def critical_batch_size(self) -> float | None:
        """B_crit of the fit, if there is one."""
        return None if self.fit is None else self.fit.b_crit


def find_regimes(
    curve: pl.DataFrame,
    *,
    baseline: Baseline | str = Baseline.ROBUST,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Regimes:
    """The boundaries of a curve (columns ``batch_size`` and ``steps``; rows with null steps are left out).

    Raises:
        AnalysisError: fewer than two points; a scaling fit that cannot be made is told in ``fit_refusal`` instead.
    """
    sizes, steps = curve_points(curve)
    if len(sizes) < 2:
        raise AnalysisError(
            f"Regimes need the steps to result at two batch sizes or more. Found {len(sizes)}; measure more batch "
            "sizes, or choose a goal that more of them reach."
        )
    kind = Baseline(baseline)
    level = baseline_examples(sizes, steps, kind)
    useful, reached = max_useful_batch_size(sizes, steps, thresholds)
    fit, refusal = _try_fit(curve)
    return Regimes(
        baseline=kind,
        baseline_examples=level,
        perfect_scaling_end=int(perfect_scaling_end(sizes, steps, level, thresholds.perfect)),
        max_useful_batch_size=int(useful),
        max_useful_reached=reached,
        overhead_batch_size=int(overhead_batch_size(sizes, steps, thresholds.overhead)),
        fit=fit,
        fit_refusal=refusal,
    )


def baseline_examples(sizes: Array, steps: Array, baseline: Baseline) -> float:
    """The examples to result that perfect scaling keeps: the height of the line S = E/B.

    ``first``: E of the smallest batch size. ``robust``: the fewest E measured at any size, so that an unlucky study
    at the smallest size cannot lift the line, and nothing above the line is called perfect.
    """
    examples = steps * sizes
    return float(examples[0] if baseline is Baseline.FIRST else examples.min())


def fewest_examples(sizes: Array, steps: Array) -> int:
    """The place of the size with the fewest examples to result; the smaller one of equals, up to rounding."""
    examples = sizes * steps
    return int(np.argmax(examples <= examples.min() * (1 + 1e-9)))


def perfect_scaling_end(sizes: Array, steps: Array, level: float, tolerance: float) -> float:
    """The largest measured batch size up to which every point has S·B <= (1 + tolerance)·level.

    Counted from the point on the line or, where none lies on it, from the fewest examples: points before that one
    are too slow, and end nothing.
    """
    examples = steps * sizes
    inside = examples <= level * (1 + tolerance) * (1 + 1e-12)
    nearest = np.where(examples >= level * (1 - 1e-9), examples, np.inf)
    start = int(np.argmax(nearest <= nearest.min() * (1 + 1e-9)))
    outside = np.flatnonzero(~inside[start:])
    last = start + int(outside[0]) - 1 if outside.size else len(sizes) - 1
    return float(sizes[max(last, 0)])


def max_useful_batch_size(sizes: Array, steps: Array, thresholds: Thresholds) -> tuple[float, bool]:
    """The smallest measured batch size with steps within ``useful`` of the fewest, and whether steps have levelled.

    They have if that size is at most a quarter of the largest, or if steps fall by no more than ``falling`` from half
    of the largest batch size to the largest (steps at the half interpolated in logarithms where it was not measured).
    Else the answer is the largest size and False: "at least".
    """
    useful = useful_candidate(sizes, steps, thresholds.useful)
    if useful * FAR_ENOUGH <= sizes[-1] or last_doubling(sizes, steps) >= 1 - thresholds.falling:
        return useful, True
    return float(sizes[-1]), False


def useful_candidate(sizes: Array, steps: Array, useful: float) -> float:
    """The smallest measured batch size with steps within ``useful`` of the fewest measured."""
    within = steps <= steps.min() * (1 + useful) * (1 + 1e-12)
    return float(sizes[int(np.argmax(within))])


def last_doubling(sizes: Array, steps: Array) -> float:
    """Steps at the largest batch size over those at its half; between measured sizes the line in logarithms counts."""
    log_sizes, log_steps = np.log(sizes), np.log(steps)
    half = log_sizes[-1] - math.log(2)
    if half >= log_sizes[0]:
        return math.exp(float(log_steps[-1] - np.interp(half, log_sizes, log_steps)))
    # All sizes lie within one doubling: the fall over them, scaled to a doubling.
    return math.exp(float((log_steps[-1] - log_steps[0]) * math.log(2) / (log_sizes[-1] - log_sizes[0])))


def overhead_batch_size(sizes: Array, steps: Array, overhead: float) -> float:
    """B*(τ): the largest measured batch size whose examples to result are within 1 + τ of the fewest examples."""
    examples = sizes * steps
    within = np.flatnonzero(examples <= examples.min() * (1 + overhead) * (1 + 1e-12))
    return float(sizes[within[-1]])


def _try_fit(curve: pl.DataFrame) -> tuple[ScalingFit | None, str | None]:
    try:
        return fit_scaling(curve), None
    except AnalysisError as error:
        return None, str(error)
