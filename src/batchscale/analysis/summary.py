"""The summary of a curve: its points, regimes and critical batch size, each number with its interval.

Everything that is shown of a curve (sentences, charts, tables, comparisons, JSON) is made from a ``CurveSummary``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from batchscale.analysis.boundaries import fewest_examples
from batchscale.analysis.confidence_set import FEWEST_SIZES, ConfidenceSet, find_confidence_set
from batchscale.analysis.curves import Array
from batchscale.analysis.evidence import Misfit, find_misfit
from batchscale.analysis.families import Family
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.least_squares import fit_family
from batchscale.analysis.noise import Noise, NoiseSource
from batchscale.analysis.optimal import OptimalSize, find_optimal
from batchscale.analysis.regimes import (
    DEFAULT_THRESHOLDS,
    Baseline,
    MeasuredCurve,
    Regimes,
    Thresholds,
    find_regimes,
)
from batchscale.analysis.regimes import FEWEST_SIZES as FEWEST_FOR_REGIMES
from batchscale.analysis.scaling import ScalingFit, check_bend, fit_families
from batchscale.analysis.units import EXAMPLES, SizeUnit
from batchscale.errors import AnalysisError
from batchscale.records.metadata.study import EDGE_WORDS

RESOLVED = 20  # evaluations up to the goal that leave the steps open by a twentieth
COARSE = 0.2  # a spacing of evaluations beyond this share of the steps makes a point doubtful


@dataclass(frozen=True)
class PointSummary:
    """A measured size: its steps, and its examples over the fewest of the curve, each with an interval.

    ``spacing`` is how many steps before the winning measurement the goal may have been passed.
    """

    batch_size: int
    steps: Estimate
    examples_ratio: Estimate
    spacing: int = 0

    @property
    def is_coarse(self) -> bool:
        """True if the evaluation plan leaves the steps open by more than a fifth."""
        return bool(self.steps.value and self.spacing > COARSE * self.steps.value)


@dataclass(frozen=True)
class CurveSummary:
    """A curve with intervals.

    Attributes:
        points: The measured sizes, growing.
        regimes: The boundaries of the regimes.
        critical: B_crit; ``value`` None where the best law has it far outside the sizes or none at all; empty where
            no law describes the points.
        optimal: The size of fewest examples, and the band of sizes that cost little more.
        fit: The scaling law; None where the best law is a line between the points (it bends outside of them) or none
            describes them, see ``fit_refusal``.
        misfit: The distance of the points from the best law, where it is more than noise explains; None otherwise.
        fit_refusal: The reason why there is no B_crit.
        fastest: The measured size with the fewest steps.
        level: The share of cases in which an interval should include the truth.
        noise: The source of the intervals of boundaries; None where there are none.
        trials: Fewest and most trials of the searches behind the points; None for bare points.
        drift: (trials, B_crit) had fewer of the same trials been run, where that can be computed.
        doubts: Reasons to trust the curve less, as text.
        failed: Sizes that were tried and never reached the goal, growing.
        doubted: Sizes that the doubts are about, growing.
        unit: The unit that texts about the curve are written in.
        confidence_set: The laws that agree with the points; None with fewer than three sizes.
    """

    points: tuple[PointSummary, ...]
    regimes: Regimes
    critical: Estimate
    optimal: OptimalSize
    fit: ScalingFit | None
    misfit: Misfit | None
    fit_refusal: str | None
    fastest: int
    level: float
    noise: NoiseSource | None
    trials: tuple[int, int] | None = None
    drift: tuple[tuple[int, float], ...] = ()
    doubts: tuple[str, ...] = ()
    failed: tuple[int, ...] = ()
    doubted: tuple[int, ...] = ()
    unit: SizeUnit = EXAMPLES
    confidence_set: ConfidenceSet | None = field(default=None, compare=False, repr=False)

    @property
    def smallest(self) -> int:
        """The smallest size that reached the goal."""
        return self.points[0].batch_size

    @property
    def largest(self) -> int:
        """The largest size that reached the goal."""
        return self.points[-1].batch_size

    def point(self, batch_size: int) -> PointSummary:
        """Return the point of a measured size."""
        return next(point for point in self.points if point.batch_size == batch_size)

    def agrees_with(self, other: "CurveSummary") -> bool:
        """Return True if the critical batch size and the regimes of another curve lie within the intervals of this."""
        pairs = (
            (self.critical, other.critical.value),
            (self.regimes.perfect_scaling_end, other.regimes.perfect_scaling_end.value),
            (self.regimes.useful, other.regimes.useful.value),
        )
        return other.misfit is None and all(mine.value is None or mine.includes(value) for mine, value in pairs)

    def steps_at(self, batch_size: int) -> Estimate:
        """Return the steps to result at any batch size: as measured, or by the laws of the confidence set.

        Without a confidence set (fewer than three sizes) a size that was not measured has no value.
        """
        for point in self.points:
            if point.batch_size == batch_size:
                return point.steps
        if self.confidence_set is None:
            return Estimate()
        low, high = self.confidence_set.steps_range(batch_size)
        value = float(self.confidence_set.best.steps(batch_size)[0])
        return Estimate(value if math.isfinite(value) else None, low, high if math.isfinite(high) else None)


@dataclass(frozen=True)
class CurveData:
    """The input of a summary: points with the intervals of their steps, the noise, and data about the searches."""

    sizes: Array
    steps: Array
    intervals: Sequence[tuple[float | None, float | None]]
    spacings: Sequence[int]
    noise: Noise
    trials: tuple[int, int] | None = None
    drift: tuple[tuple[int, float], ...] = ()
    doubts: tuple[str, ...] = ()
    failed: tuple[int, ...] = ()
    doubted: tuple[int, ...] = ()
    unit: SizeUnit = EXAMPLES


def summarize(
    data: CurveData,
    baseline: Baseline = Baseline.ROBUST,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    level: float = 0.9,
) -> CurveSummary:
    """Return the summary of a curve.

    Raises:
        AnalysisError: There are fewer than two points; for a scaling fit that fails, see ``fit_refusal`` instead.
    """
    sizes, steps = data.sizes, data.steps
    if len(sizes) < FEWEST_FOR_REGIMES:
        raise AnalysisError(
            f"Regimes need the steps to result at two batch sizes or more. Found {len(sizes)}; measure more batch "
            "sizes, or choose a goal that more of them reach."
        )
    fit = laws = misfit = reach = None
    if len(sizes) >= FEWEST_SIZES:
        fit = fit_families(np.log(sizes), np.log(steps), data.noise)
        laws = find_confidence_set(sizes, steps, data.noise, level, fit)
        misfit = find_misfit(fit.best, np.log(sizes), np.log(steps), data.noise)
        if misfit is not None:
            misfit = replace(misfit, error=_closest(fit, sizes, steps))
        reach = data.noise.reach(fit.best.squares, len(sizes) - fit.best.family.parameters, level)
    points = _points(data, reach)
    coarse = np.array([point.is_coarse for point in points])
    critical, refusal = Estimate(), None if misfit is None else misfit.reason
    if fit is not None and laws is not None and misfit is None:
        critical, refusal = _critical(laws, fit, sizes)
    lies_outside = critical.value is None and fit is not None and fit.best.family in (Family.HYPERBOLA, Family.SHARP)
    return CurveSummary(
        points=points,
        regimes=find_regimes(
            MeasuredCurve(sizes, steps, reach, coarse, tuple(data.intervals)),
            None if misfit else laws,
            baseline,
            thresholds,
        ),
        critical=critical,
        optimal=find_optimal(None if misfit else laws, sizes, steps, thresholds.band),
        fit=None if misfit or lies_outside else fit,
        misfit=misfit,
        fit_refusal=refusal,
        fastest=int(sizes[int(np.argmin(steps))]),
        level=level,
        noise=None if laws is None else data.noise.source,
        trials=data.trials,
        drift=data.drift,
        doubts=data.doubts,
        failed=data.failed,
        doubted=data.doubted,
        unit=data.unit,
        confidence_set=laws,
    )


def study_doubts(curve: pl.DataFrame, unit: SizeUnit = EXAMPLES) -> tuple[str, ...]:
    """Return the doubts about a curve with the columns of ``ANALYSIS_SCHEMA``."""
    reached = pl.col("steps").is_not_null()
    doubts = []
    missing = _sizes(curve, ~reached)
    if missing:
        doubts.append(f"no trial reached the goal at batch size {unit.sizes(missing)}")
    edge = _sizes(curve, pl.col("at_edge").fill_null(False))
    if edge:
        doubts.append(
            f"the best trial lies {EDGE_WORDS} at batch size {unit.sizes(edge)}, so a wider search may find fewer steps"
        )
    moving = curve.filter(pl.col("still_moves").fill_null(False) & reached).sort("batch_size")
    if len(moving):
        counts = moving.select(pl.format("{} of {}", "reached", "trials")).to_series().unique(maintain_order=True)
        few = f"reached by {' or '.join(counts)}" if len(counts) < 3 else "reached by few"
        sizes = unit.sizes(moving["batch_size"].to_list())
        doubts.append(f"more trials at batch size {sizes} would likely move the answer (goal {few})")
    return (*doubts, *_resolution_doubts(curve, "measure with [evaluation] every = {every} there", unit))


def doubted_sizes(curve: pl.DataFrame) -> tuple[int, ...]:
    """Return the sizes that a doubt about their own point names, growing."""
    coarse = (pl.col("steps") > 0) & (pl.col("spacing") > COARSE * pl.col("steps"))
    marked = [pl.col(name).fill_null(False) for name in ("at_edge", "still_moves") if name in curve.columns]
    return tuple(_sizes(curve, pl.any_horizontal(coarse, *marked)))


def _resolution_doubts(curve: pl.DataFrame, plan: str, unit: SizeUnit) -> tuple[str, ...]:
    """Return the doubt about points whose steps the evaluation plan leaves open, and the plan that resolves them."""
    coarse = curve.filter((pl.col("steps") > 0) & (pl.col("spacing") > COARSE * pl.col("steps"))).sort("batch_size")
    if coarse.is_empty():
        return ()
    sizes = coarse["batch_size"].to_list()
    first = coarse.filter(pl.col("spacing") >= pl.col("steps"))["batch_size"].to_list()
    fewest = int(coarse["steps"].min() or 1)  # type: ignore[arg-type] # whole numbers
    every = max(math.ceil(fewest / RESOLVED), 1)
    text = "the steps are known only to within their evaluation spacing at batch size " + unit.sizes(sizes)
    if first:
        text += f" (at {unit.sizes(first)} the first measurement had reached the goal already)"
    return (f"{text}: {plan.format(every=every)}",)


def failed_sizes(curve: pl.DataFrame) -> tuple[int, ...]:
    """Return the sizes that never reached the goal (columns ``batch_size``, ``steps``; null: not reached)."""
    reached = pl.col("steps").is_not_null().any().alias("reached")
    return tuple(_sizes(curve.group_by("batch_size").agg(reached), ~pl.col("reached")))


def run_doubts(rows: pl.DataFrame, curve: pl.DataFrame, unit: SizeUnit = EXAMPLES) -> tuple[str, ...]:
    """Return the doubts about repeated runs and their curve.

    Args:
        rows: The runs (columns ``batch_size``, ``steps``; null for a goal not reached).
        curve: The points (columns ``batch_size``, ``steps``, ``spacing``).
        unit: The unit to write batch sizes in.
    """
    never = list(failed_sizes(rows))
    some = sorted(set(_sizes(rows, pl.col("steps").is_null())) - set(never))
    doubts = []
    if never:
        doubts.append(f"the goal was not reached at batch size {unit.sizes(never)}")
    if some:
        doubts.append(f"runs that did not reach the goal are left out at batch size {unit.sizes(some)}")
    return (*doubts, *_resolution_doubts(curve, "evaluate every {every:,} steps there", unit))


def _sizes(curve: pl.DataFrame, condition: pl.Expr) -> list[int]:
    return [int(size) for size in curve.filter(condition).sort("batch_size")["batch_size"]]


def _points(data: CurveData, reach: Array | None) -> tuple[PointSummary, ...]:
    """Return the measured points; a ratio of two has the noise of both."""
    examples = data.sizes * data.steps
    best = fewest_examples(data.sizes, data.steps)
    points = []
    for i, (size, interval, spacing) in enumerate(zip(data.sizes, data.intervals, data.spacings, strict=True)):
        ratio = float(examples[i] / examples[best])
        estimate = Estimate(ratio)
        if i == best:
            estimate = Estimate(1.0, 1.0, 1.0)
        elif reach is not None:
            factor = math.exp(math.hypot(reach[i], reach[best]))
            estimate = Estimate(ratio, ratio / factor, ratio * factor)
        points.append(PointSummary(int(size), Estimate(float(data.steps[i]), *interval), estimate, int(spacing)))
    return tuple(points)


def _closest(fit: ScalingFit, sizes: Array, steps: Array) -> float:
    """Return how far the closest law of any fitted family lies off the points on average, each counting alike."""
    ones = np.ones(len(sizes))
    errors = [fit_family(each.family, np.log(sizes), np.log(steps), ones).rms_log for each in fit.families]
    return math.expm1(min(errors))


def _critical(laws: ConfidenceSet, fit: ScalingFit, sizes: Array) -> tuple[Estimate, str | None]:
    """Return B_crit by the best law, its interval, and the reason why it has no value."""
    low, high = laws.critical_range()
    try:
        check_bend(fit.best, sizes)
    except AnalysisError as error:
        if fit.best.family is Family.POWER:
            return Estimate(), str(error)
        sharp = next((each for each in fit.allowed if each.family is Family.SHARP), None)
        if sharp is None or low is None or high is None:
            return Estimate(None, low, high), str(error)
        # The best hyperbola bends elsewhere, but a sharper law bends here, and all laws of the set agree.
        return Estimate(sharp.b_crit, low, high), None
    return Estimate(fit.best.b_crit, low, high), None
