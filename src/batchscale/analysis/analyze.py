"""A workload's whole answer for one goal: the curve with intervals and flags, the fit, the regimes.

Puts the parts of this package together; decides nothing by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.intervals import (
    DEFAULT_RESAMPLING,
    BoundaryIntervals,
    Interval,
    Resampling,
    StudyPoint,
    boundary_intervals,
    point_intervals,
)
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.regimes import DEFAULT_THRESHOLDS, Baseline, Regimes, Thresholds, regimes
from batchscale.analysis.results import RESULT_SCHEMA, results_of
from batchscale.analysis.robustness import verdicts
from batchscale.analysis.scaling import profile_interval
from batchscale.analysis.tail import Finishers
from batchscale.analysis.winners import WINNER_SCHEMA, winner_edges, winner_spacing
from batchscale.errors import AnalysisError, SpecError, UnknownNameError, one_line, suggest_names
from batchscale.records.frames import Records
from batchscale.records.own_facts import own_facts
from batchscale.spec import Goal, WorkloadName

ANALYSIS_SCHEMA: Mapping[str, type[pl.DataType]] = {
    **RESULT_SCHEMA,
    **WINNER_SCHEMA,
    "spacing": pl.Int64,  # steps between the winner's last two measurements up to the goal
    "steps_low": pl.Float64,  # interval of the steps to result of a fresh search of the same size
    "steps_high": pl.Float64,
    "interval_note": pl.String,  # why there is no interval
    "stopped": pl.Int64,  # COMPLETE trials that a race or early stopping ended before the goal: censored, not failed
    "still_moves": pl.Boolean,  # more trials would likely still move this point
    "verdict": pl.String,
}
# behind these columns: one Float64 column per metaparameter of the winning trial


@dataclass(frozen=True)
class Options:
    """How a curve is judged."""

    baseline: Baseline = Baseline.ROBUST
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    resampling: Resampling = DEFAULT_RESAMPLING
    num_train_examples: int | None = None


@dataclass(frozen=True)
class Analysis:
    """The answer for one workload and goal (both None for bare points).

    ``regimes`` is None where there are too few points; ``refusal`` says why.

    ``critical_from`` says what the interval of B_crit rests on: "trials", or "residuals" of the fit where too few
    trials reached the goal to resample.
    """

    workload: WorkloadName | None
    goal: Goal | None
    curve: pl.DataFrame
    points: tuple[StudyPoint, ...]
    regimes: Regimes | None
    refusal: str | None
    intervals: BoundaryIntervals | None
    critical_from: str | None


def analyze(records: Records, workload: WorkloadName, goal: Goal, options: Options | None = None) -> Analysis:
    """The curve of one workload with everything known about it.

    Raises:
        AnalysisError: the workload has no COMPLETE trial.
        UnknownNameError: there is no such workload, or it lacks the goal's metric.
    """
    chosen = options or Options()
    selected = select_workload(records, workload)
    outcomes = trial_outcomes(selected, goal)
    results = results_of(outcomes, num_train_examples=chosen.num_train_examples)
    if results.is_empty() or results["trials"].sum() == 0:
        raise AnalysisError(f"{workload} has no COMPLETE trial yet, so there is nothing to analyze.")
    flagged = winner_spacing(selected, winner_edges(selected, results))
    points = curve_study_points(outcomes, flagged)
    curve = _with_intervals(flagged, points, chosen.resampling).join(
        verdicts(outcomes, selected.studies).select("batch_size", "still_moves", "verdict"), on="batch_size", how="left"
    )
    curve = curve.join(_stopped(selected, outcomes), on="batch_size", how="left", maintain_order="left")
    extra = [
        name for name in selected.metaparameters if name in curve.columns and curve[name].null_count() < len(curve)
    ]
    ordered = curve.select(*ANALYSIS_SCHEMA, *extra)
    found, refusal = _try_regimes(ordered, chosen)
    intervals, source = _boundaries(ordered, points, found, chosen)
    return Analysis(workload, goal, ordered, tuple(points), found, refusal, intervals, source)


def analyze_points(curve: pl.DataFrame, options: Options | None = None) -> Analysis:
    """The fit and the regimes of bare points (columns ``batch_size``, ``steps``), B_crit's interval by residuals."""
    chosen = options or Options()
    found, refusal = _try_regimes(curve, chosen)
    if found is None or found.fit is None:
        return Analysis(None, None, curve, (), found, refusal, None, None)
    low, high = profile_interval(curve, found.fit.best, chosen.resampling.level)
    none = Interval(reason="bare points have no trials to resample")
    return Analysis(
        None, None, curve, (), found, refusal, BoundaryIntervals(Interval(low, high), none, none), "residuals"
    )


def select_workload(records: Records, workload: WorkloadName) -> Records:
    """The records of one workload; UnknownNameError with the nearest names when there is none."""
    if workload not in records.workloads:
        names = [str(name) for name in records.workloads]
        raise UnknownNameError(f"There are no records of {one_line(workload)}; {suggest_names(str(workload), names)}")
    return records.workload(workload)


def stored_goal(records: Records, workload: WorkloadName) -> Goal | None:
    """The goal that a workload's studies were run for, if they say so and agree."""
    extras = records.workload(workload).studies["extra"].to_list()
    texts = {goal for goal in (own_facts(extra).get("goal") for extra in extras) if isinstance(goal, str)}
    if len(texts) != 1:
        return None
    try:
        return Goal.parse(texts.pop())
    except SpecError:
        return None


def curve_study_points(outcomes: pl.DataFrame, results: pl.DataFrame) -> list[StudyPoint]:
    """The points of one curve with the trials behind them, by growing batch size; studies without a result are none."""
    reached = outcomes.filter(pl.col("outcome") == Outcome.REACHED.value)
    values = {
        key[0]: group["steps_to_goal"].to_numpy().astype(np.float64) for key, group in reached.group_by("batch_size")
    }
    spacing = pl.col("spacing") if "spacing" in results.columns else pl.lit(0).alias("spacing")
    rows = results.filter(pl.col("steps").is_not_null()).sort("batch_size")
    return [
        StudyPoint(size, steps, Finishers(np.maximum(values[size], 1.0), trials), gap or 0)
        for size, steps, trials, gap in rows.select("batch_size", "steps", "trials", spacing).rows()
        if steps > 0  # a goal that is reached before the first step says nothing about scaling
    ]


def _stopped(records: Records, outcomes: pl.DataFrame) -> pl.DataFrame:
    plans = records.studies.select("batch_size", "train_steps", "early_stopping")
    early = (
        (pl.col("outcome") == Outcome.NOT_REACHED.value)
        & pl.col("early_stopping")
        & (pl.col("last_step") < pl.col("train_steps"))
    )
    joined = outcomes.join(plans, on="batch_size")
    return joined.group_by("batch_size").agg(early.sum().cast(pl.Int64).alias("stopped"))


def _with_intervals(results: pl.DataFrame, points: list[StudyPoint], resampling: Resampling) -> pl.DataFrame:
    rows = [
        (point.batch_size, interval.low, interval.high, interval.reason)
        for point, interval in zip(points, point_intervals(points, resampling), strict=True)
    ]
    schema = {
        "batch_size": pl.Int64,
        "steps_low": pl.Float64,
        "steps_high": pl.Float64,
        "interval_note": pl.String,
    }
    intervals = pl.DataFrame(rows, schema=schema, orient="row")
    return results.join(intervals, on="batch_size", how="left", maintain_order="left")


def _try_regimes(curve: pl.DataFrame, options: Options) -> tuple[Regimes | None, str | None]:
    usable = curve.filter(pl.col("steps") > 0)
    try:
        return regimes(usable, baseline=options.baseline, thresholds=options.thresholds), None
    except AnalysisError as error:
        return None, str(error)


def _boundaries(
    curve: pl.DataFrame, points: list[StudyPoint], found: Regimes | None, options: Options
) -> tuple[BoundaryIntervals | None, str | None]:
    if found is None:
        return None, None
    best = None if found.fit is None else found.fit.best
    intervals = boundary_intervals(
        points,
        None if best is None else best.family,
        baseline=options.baseline,
        thresholds=options.thresholds,
        resampling=options.resampling,
    )
    if best is None or intervals.b_crit.low is not None or intervals.b_crit.high is not None:
        return intervals, None if best is None else "trials"
    low, high = profile_interval(curve.filter(pl.col("steps") > 0), best, options.resampling.level)
    rest = intervals.perfect_scaling_end, intervals.max_useful_batch_size
    return BoundaryIntervals(Interval(low, high, intervals.b_crit.reason), *rest), "residuals"
