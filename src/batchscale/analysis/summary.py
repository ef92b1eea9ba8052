"""The summary of a curve: its points, regimes and critical batch size, each number with its interval.

Everything that is shown of a curve (sentences, charts, tables, comparisons, JSON) is made from a ``CurveSummary``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from batchscale.analysis.confidence_set import FEWEST_SIZES, ConfidenceSet, find_confidence_set
from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import Estimate, with_interval
from batchscale.analysis.noise import Noise, NoiseSource
from batchscale.analysis.optimal import OptimalSize, find_optimal
from batchscale.analysis.regimes import DEFAULT_THRESHOLDS, Baseline, Regimes, Thresholds, fewest_examples, find_regimes
from batchscale.analysis.regimes import FEWEST_SIZES as FEWEST_FOR_REGIMES
from batchscale.analysis.scaling import Misfit, ScalingFit, check_bend, find_misfit, fit_families
from batchscale.errors import AnalysisError
from batchscale.formatting import list_sizes
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
        fit: The scaling law; None where the best law bends outside the points, see ``fit_refusal``.
        misfit: The distance of the points from the best law, where it is more than noise explains; None otherwise.
        fit_refusal: The reason why there is no B_crit.
        fastest: The measured size with the fewest steps.
        level: The share of cases in which an interval should include the truth.
        noise: The source of the intervals of boundaries; None where there are none.
        trials: Fewest and most trials of the searches behind the points; None for bare points.
        drift: (trials, B_crit) had fewer of the same trials been run, where that can be computed.
        doubts: Reasons to trust the curve less, as text.
        failed: Sizes that were tried and never reached the goal, growing.
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
        return with_interval(float(np.exp(self.confidence_set.best_log_steps(batch_size)[0])), low, high)


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
    laws = find_confidence_set(sizes, steps, data.noise, level) if len(sizes) >= FEWEST_SIZES else None
    fit, misfit, refusal = _try_fit(data)
    describing = None if misfit is not None else laws  # laws that do not describe the points bound nothing
    points = _points(data, describing)
    coarse = np.array([point.is_coarse for point in points])
    critical = Estimate() if misfit is not None else _critical(laws, fit)
    return CurveSummary(
        points=points,
        regimes=find_regimes(sizes, steps, describing, coarse=coarse, baseline=baseline, thresholds=thresholds),
        critical=critical,
        optimal=find_optimal(None if fit is None else fit.best, sizes, steps, thresholds.band),
        fit=fit,
        misfit=misfit,
        fit_refusal=refusal if critical.value is None else None,  # a sharper law may bend where no hyperbola does
        fastest=int(sizes[int(np.argmin(steps))]),
        level=level,
        noise=None if describing is None else data.noise.source,
        trials=data.trials,
        drift=data.drift,
        doubts=data.doubts,
        failed=data.failed,
        confidence_set=laws,
    )


def study_doubts(curve: pl.DataFrame) -> tuple[str, ...]:
    """Return the doubts about a curve with the columns of ``ANALYSIS_SCHEMA``."""
    reached = pl.col("steps").is_not_null()
    doubts = []
    missing = _sizes(curve, ~reached)
    if missing:
        doubts.append(f"no trial reached the goal at batch size {list_sizes(missing)}")
    edge = _sizes(curve, pl.col("at_edge").fill_null(False))
    if edge:
        doubts.append(
            f"the best trial lies {EDGE_WORDS} at batch size {list_sizes(edge)}, so a wider search may find fewer steps"
        )
    moving = _sizes(curve, pl.col("still_moves").fill_null(False) & reached)
    if moving:
        doubts.append(f"more trials would likely still move batch size {list_sizes(moving)}")
    return (*doubts, *_resolution_doubts(curve))


def _resolution_doubts(curve: pl.DataFrame) -> tuple[str, ...]:
    """Return the doubt about points whose steps the evaluation plan leaves open, and the plan that resolves them."""
    coarse = curve.filter((pl.col("steps") > 0) & (pl.col("spacing") > COARSE * pl.col("steps"))).sort("batch_size")
    if coarse.is_empty():
        return ()
    sizes = coarse["batch_size"].to_list()
    first = coarse.filter(pl.col("spacing") >= pl.col("steps"))["batch_size"].to_list()
    fewest = int(coarse["steps"].min() or 1)  # type: ignore[arg-type] # whole numbers
    every = max(math.ceil(fewest / RESOLVED), 1)
    text = "the steps are known only to within their evaluation spacing at batch size " + list_sizes(sizes)
    if first:
        text += f" (at {list_sizes(first)} the first measurement had reached the goal already)"
    return (f"{text}: measure with [evaluation] every = {every} there",)


def failed_sizes(curve: pl.DataFrame) -> tuple[int, ...]:
    """Return the sizes that never reached the goal (columns ``batch_size``, ``steps``; null: not reached)."""
    reached = pl.col("steps").is_not_null().any().alias("reached")
    return tuple(_sizes(curve.group_by("batch_size").agg(reached), ~pl.col("reached")))


def run_doubts(curve: pl.DataFrame) -> tuple[str, ...]:
    """Return the doubts about repeated runs (columns ``batch_size``, ``steps``; null for a goal not reached)."""
    never = list(failed_sizes(curve))
    some = sorted(set(_sizes(curve, pl.col("steps").is_null())) - set(never))
    doubts = []
    if never:
        doubts.append(f"the goal was not reached at batch size {list_sizes(never)}")
    if some:
        doubts.append(f"runs that did not reach the goal are left out at batch size {list_sizes(some)}")
    return tuple(doubts)


def _sizes(curve: pl.DataFrame, condition: pl.Expr) -> list[int]:
    return [int(size) for size in curve.filter(condition).sort("batch_size")["batch_size"]]


def _points(data: CurveData, laws: ConfidenceSet | None) -> tuple[PointSummary, ...]:
    sizes, steps = data.sizes, data.steps
    examples = sizes * steps
    best = fewest_examples(sizes, steps)
    ratios = None
    if laws is not None:
        logs = laws.log_steps(sizes) + np.log(sizes)
        ratios = np.exp(logs - logs[:, best : best + 1])
    points = []
    for i, (size, interval, spacing) in enumerate(zip(sizes, data.intervals, data.spacings, strict=True)):
        low = high = None
        if i == best:
            low = high = 1.0
        elif ratios is not None:
            low, high = float(ratios[:, i].min()), float(ratios[:, i].max())
        ratio = with_interval(float(examples[i] / examples[best]), low, high)
        points.append(PointSummary(int(size), with_interval(float(steps[i]), *interval), ratio, int(spacing)))
    return tuple(points)


def _try_fit(data: CurveData) -> tuple[ScalingFit | None, Misfit | None, str | None]:
    if len(data.sizes) < FEWEST_SIZES:
        return None, None, None
    fit = fit_families(np.log(data.sizes), np.log(data.steps), data.noise.weights)
    misfit = find_misfit(fit)
    if misfit is not None:
        return None, misfit, misfit.reason
    try:
        check_bend(fit.best, data.sizes)
    except AnalysisError as error:
        return None, None, str(error)
    return fit, None, None


def _critical(laws: ConfidenceSet | None, fit: ScalingFit | None) -> Estimate:
    value = None if fit is None else fit.b_crit
    if laws is None:
        return Estimate(value)
    low, high = laws.critical_range()
    if value is None and low is not None and high is not None:
        # The best hyperbola bends elsewhere, but a sharper law bends here, and all laws of the set agree.
        value = math.exp(float(laws.log_b[laws.best]))
    return with_interval(value, low, high)
