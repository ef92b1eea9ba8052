"""Goals: the boundaries of a curve over a range of goals, and a suggested goal."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

import polars as pl

from batchscale.analysis.budgets import best_per_trial
from batchscale.analysis.curve_analysis import AnalysisOptions, analyze
from batchscale.analysis.regimes import DEFAULT_THRESHOLDS, Baseline, Thresholds
from batchscale.errors import AnalysisError
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

SENSITIVITY_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "points": pl.Int64,  # batch sizes that reached the goal
    "missing": pl.Int64,  # batch sizes that did not
    "perfect_scaling_end": pl.Int64,
    "max_useful_batch_size": pl.Int64,
    "max_useful_reached": pl.Boolean,
    "s_min": pl.Float64,
    "b_crit": pl.Float64,
    "refusal": pl.String,  # the reason for a null
}


def goal_sensitivity(
    records: Records,
    goals: Iterable[Goal],
    *,
    baseline: Baseline | str = Baseline.ROBUST,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> pl.DataFrame:
    """Return the boundaries of the same curves over a range of goals (Figure 2): one row per workload and goal."""
    options = AnalysisOptions(Baseline(baseline), thresholds)
    rows = [_sensitivity_row(records, name, goal, options) for name, goal in product(records.workloads, list(goals))]
    return pl.DataFrame(rows, schema=SENSITIVITY_SCHEMA, orient="row")


def _sensitivity_row(records: Records, name: WorkloadName, goal: Goal, options: AnalysisOptions) -> tuple[object, ...]:
    key = (name.dataset, name.model, name.optimizer, str(goal))
    try:
        answer = analyze(records, name, goal, options)
    except AnalysisError as error:
        return (*key, 0, records.workload(name).studies.height, *(None,) * 5, str(error))
    points = answer.curve.filter(pl.col("steps") > 0).height
    counts = (points, answer.curve.height - points)
    summary = answer.summary
    if summary is None:
        return (*key, *counts, *(None,) * 5, answer.refusal)
    regimes = summary.regimes
    return (
        *key,
        *counts,
        regimes.perfect_end,
        regimes.max_useful_batch_size,
        regimes.max_useful_reached,
        None if summary.fit is None else summary.fit.s_min,
        summary.critical.value,
        summary.fit_refusal,
    )


@dataclass(frozen=True)
class GoalSuggestion:
    """A goal that every study reaches, and the number of trials of each that pass it."""

    goal: Goal
    trials: int


def suggest_goal(
    records: Records, workload: WorkloadName, metric: str, *, trials: int = 5, maximize: bool = False, digits: int = 3
) -> GoalSuggestion:
    """Return the best goal that at least ``trials`` COMPLETE trials pass at every batch size, rounded to ``digits``.

    Raises:
        AnalysisError: A study has fewer such trials than that.
    """
    best = best_per_trial(records.workload(workload), workload, metric, maximize=maximize)
    ranked = best.with_columns(pl.col("value").rank("ordinal", descending=maximize).over("batch_size").alias("rank"))
    sizes = records.workload(workload).studies["batch_size"].to_list()
    enough = ranked.filter(pl.col("rank") == trials)
    short = sorted(set(sizes) - set(enough["batch_size"].to_list()))
    if short or not sizes:
        raise AnalysisError(
            f"A goal for {workload} must be in reach of {trials} trials at every batch size. Batch size "
            f"{short[0] if short else '-'} has fewer COMPLETE trials; require fewer, or run more."
        )
    limiting = enough.sort("value", descending=not maximize).row(0, named=True)
    value = _beyond(float(limiting["value"]), digits, up=not maximize)
    return GoalSuggestion(Goal(metric, value, maximize), trials)


def _beyond(value: float, digits: int, *, up: bool) -> float:
    """Return the nearest number with this many digits that is strictly beyond, so that the value itself passes."""
    if value == 0:
        return 10.0**-digits if up else -(10.0**-digits)
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    count = math.floor(value / unit) + 1 if up else math.ceil(value / unit) - 1
    goal = float(f"{count * unit:.{digits + 2}g}")
    passes = value < goal if up else value > goal
    return goal if passes else float(f"{(count + (1 if up else -1)) * unit:.{digits + 2}g}")
