"""The analysis of a workload for a goal, or of bare points: the curve with intervals and flags, and its summary."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from batchscale.analysis.budgets import examples_by_dataset
from batchscale.analysis.confirmation import Confirmation, confirmed_intervals, confirmed_noise, find_confirmations
from batchscale.analysis.curves import Array, detect_spacing
from batchscale.analysis.intervals import (
    DEFAULT_RESAMPLING,
    Finishers,
    Resampling,
    StudyPoint,
    point_intervals,
)
from batchscale.analysis.metaparameters import derive_values
from batchscale.analysis.noise import Noise, coarse_noise, run_intervals, run_noise, trial_noise
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.regimes import DEFAULT_THRESHOLDS, Baseline, Thresholds
from batchscale.analysis.results import RESULT_SCHEMA, WINNER_SCHEMA, results_of, winner_edges, winner_spacing
from batchscale.analysis.robustness import FEWEST_REACHED, critical_drift, point_stability
from batchscale.analysis.summary import (
    CurveData,
    CurveSummary,
    doubted_sizes,
    failed_sizes,
    run_doubts,
    study_doubts,
    summarize,
)
from batchscale.analysis.units import EXAMPLES, SizeUnit, unit_of
from batchscale.errors import AnalysisError, SpecError, UnknownNameError, one_line, suggest_names
from batchscale.records.frames import Records, fixed_values
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

ANALYSIS_SCHEMA: Mapping[str, type[pl.DataType]] = {
    **RESULT_SCHEMA,
    **WINNER_SCHEMA,
    "spacing": pl.Int64,  # steps between the winner's last two measurements up to the goal
    "steps_low": pl.Float64,  # interval of the median steps to result of fresh searches of the same size
    "steps_high": pl.Float64,
    "interval_note": pl.String,  # the reason for a missing interval
    "stopped": pl.Int64,  # COMPLETE trials that a race or early stopping ended before the goal: censored, not failed
    "still_moves": pl.Boolean,  # more trials would likely move this point, and with it the answer
    "stability": pl.String,  # the same as text
    "search_steps": pl.Int64,  # the fewest steps of the search alone, beside ``steps`` of its confirmation
    "seeds": pl.Int64,  # new seeds that confirm the point; null without
}
CONFIRMED = "the best trials were trained again with new seeds"
UNMOVED = "more trials may move this point, but hardly the answer"

# behind these columns: one Float64 column per metaparameter of the winning trial


@dataclass(frozen=True)
class AnalysisOptions:
    """Options of an analysis.

    ``confirmed``: use confirmations in place of the searches, where all sizes have one. ``tokens_per_example`` is what
    texts are written with; None: as the records state it.
    """

    baseline: Baseline = Baseline.ROBUST
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    resampling: Resampling = DEFAULT_RESAMPLING
    num_train_examples: int | None = None
    confirmed: bool = True
    tokens_per_example: int | None = None


@dataclass(frozen=True)
class Analysis:
    """The analysis of one workload and goal (both None for bare points).

    ``summary`` is None where there are too few points, and ``refusal`` gives the reason. ``doubts`` are reasons to
    trust the curve less. ``unfinished`` are the batch sizes whose search has not ended. ``unit`` is what texts are
    written in; all numbers are in examples. ``derived`` has, for each batch size, what the winning trial's
    metaparameters mean there (`derive_values`).
    """

    workload: WorkloadName | None
    goal: Goal | None
    curve: pl.DataFrame
    points: tuple[StudyPoint, ...]
    summary: CurveSummary | None
    refusal: str | None
    doubts: tuple[str, ...]
    unfinished: tuple[int, ...] = ()
    unit: SizeUnit = EXAMPLES
    derived: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


def analyze(records: Records, workload: WorkloadName, goal: Goal, options: AnalysisOptions | None = None) -> Analysis:
    """Return the analysis of one workload.

    Raises:
        AnalysisError: The workload has no COMPLETE trial.
        UnknownNameError: There is no such workload, or it lacks the goal's metric.
    """
    options = options or AnalysisOptions()
    selected = select_workload(records, workload)
    check_complete(selected, workload)
    unit = SizeUnit(options.tokens_per_example) if options.tokens_per_example else unit_of(selected)
    outcomes = trial_outcomes(selected, goal)
    results = results_of(outcomes, num_train_examples=examples_by_dataset(selected, options.num_train_examples))
    flagged = winner_spacing(selected, winner_edges(selected, outcomes, results))
    points = curve_study_points(outcomes, flagged)
    curve = _with_intervals(flagged, points, options.resampling).join(
        point_stability(outcomes, selected.studies).select("batch_size", "half_steps", "still_moves", "stability"),
        on="batch_size",
        how="left",
    )
    curve = curve.join(_stopped(selected, outcomes), on="batch_size", how="left", maintain_order="left")
    confirmations = find_confirmations(selected, goal) if options.confirmed else {}
    reached = [point.batch_size for point in points]
    unconfirmed = [size for size in reached if confirmations and size not in confirmations]
    confirmed = [] if unconfirmed or not confirmations else [confirmations[size] for size in reached]
    curve = _with_confirmations(curve, selected, confirmed, options.resampling.level)
    extra = [
        name for name in selected.metaparameters if name in curve.columns and curve[name].null_count() < len(curve)
    ]
    noise = confirmed_noise(confirmed) if confirmed else trial_noise(points)
    drift = () if confirmed else critical_drift(points)
    curve = _flag_moves(curve, noise, options)
    ordered = curve.select(*ANALYSIS_SCHEMA, *extra)
    derived = _derive(ordered, selected, unit)
    unfinished = _unfinished_sizes(selected)
    general = _damage_doubts(records)
    if unfinished:
        general += (f"the search is not finished at batch size {unit.sizes(unfinished)}",)
    if unconfirmed:
        general += (f"training the best trials again did not confirm batch size {unit.sizes(unconfirmed)}",)
    doubts = (*general, *study_doubts(ordered, unit))
    data = replace(_study_data(ordered, noise), drift=drift, doubts=doubts, unit=unit)
    if general:
        data = replace(data, doubted=tuple(reached))
    summary, refusal = _try_summary(data, options)
    return Analysis(workload, goal, ordered, tuple(points), summary, refusal, doubts, unfinished, unit, derived)


def _derive(curve: pl.DataFrame, records: Records, unit: SizeUnit) -> dict[int, dict[str, float]]:
    """Return the derived quantities of each batch size that reached the goal, with the values that were held fixed."""
    derived = {}
    for (*_, size), fixed in fixed_values(records).items():
        (row,) = curve.filter(pl.col("batch_size") == size).to_dicts() or [{"steps": None}]
        values = {name: value for name, value in row.items() if name not in ANALYSIS_SCHEMA and value is not None}
        if row["steps"]:
            derived[int(size)] = derive_values({**fixed, **values}, int(size), row["steps"], unit)
    return derived


def _flag_moves(curve: pl.DataFrame, noise: Noise, options: AnalysisOptions) -> pl.DataFrame:
    """Clear ``still_moves`` of the points that could move without moving the answer out of its intervals.

    Such a point is moved by as much as the second half of its trials improved it, first together with all others, then
    alone. Points that few trials reached, or that half of them often miss, have no such estimate and stay flagged.
    """
    data = _study_data(curve, noise)
    summary, _ = _try_summary(data, options)
    if summary is None or summary.misfit is not None:
        return curve
    gains = {
        size: steps / half
        for size, steps, half, reached in curve.filter("still_moves")
        .select("batch_size", "steps", "half_steps", "reached")
        .rows()
        if steps and half and reached >= FEWEST_REACHED
    }

    def moves_answer(sizes: Collection[int]) -> bool:
        factors = np.array([gains[size] if size in sizes else 1.0 for size in data.sizes.astype(int)])
        moved, _ = _try_summary(replace(data, steps=data.steps * factors), options)
        return moved is None or not summary.agrees_with(moved)

    if not gains:
        return curve
    moving = list(gains) if moves_answer(gains) else []
    moving = [size for size in moving if moves_answer([size])] or moving
    cleared = pl.col("batch_size").is_in([size for size in gains if size not in moving])
    return curve.with_columns(
        (pl.col("still_moves") & ~cleared).alias("still_moves"),
        pl.when(cleared).then(pl.lit(UNMOVED)).otherwise("stability").alias("stability"),
    )


def _unfinished_sizes(records: Records) -> tuple[int, ...]:
    """Return the batch sizes whose study asked for trials and has no result yet; records of others name neither."""
    metadata = pl.col(METADATA).struct
    waiting = metadata.field("trials").is_not_null() & metadata.field("goal_reached").is_null()
    return tuple(int(size) for size in records.studies.filter(waiting).sort("batch_size")["batch_size"])


def _damage_doubts(records: Records) -> tuple[str, ...]:
    """Return the doubt about damaged records; by now the measurements of the workload have been read."""
    count = len(records.notices)
    return (f"the records are damaged in {count:,} place(s), which batchscale check lists",) if count else ()


def analyze_points(rows: pl.DataFrame, options: AnalysisOptions | None = None) -> Analysis:
    """Return the analysis of bare points (columns ``batch_size``, ``steps``; null where the goal was not reached).

    A batch size may have several rows, one per run: its point is their geometric mean, and the spread of the runs
    gives the intervals. A column ``spacing`` has the steps between two evaluations; where it is missing or null, an
    interval that divides all steps counts as one. The curve of the analysis has the columns batch_size, steps,
    steps_low, steps_high, runs and spacing.
    """
    options = options or AnalysisOptions()
    reached = rows.drop_nulls("steps").filter(pl.col("steps") > 0)
    groups = [
        (int(key[0]), group["steps"].to_numpy().astype(np.float64))
        for key, group in sorted(reached.group_by("batch_size"), key=lambda item: item[0][0])
    ]
    logs = [np.log(runs) for _, runs in groups]
    means = [math.exp(float(values.mean())) if len(values) > 1 else float(np.exp(values[0])) for values in logs]
    spacings = _run_spacings(reached, groups)
    ends = [
        (low if low is None else max(min(low, mean - gap), 1.0), high)
        for (low, high), mean, gap in zip(run_intervals(logs, options.resampling.level), means, spacings, strict=True)
    ]
    curve = pl.DataFrame(
        [
            (size, mean if len(runs) > 1 else float(runs[0]), low, high, len(runs), gap)
            for (size, runs), mean, (low, high), gap in zip(groups, means, ends, spacings, strict=True)
        ],
        schema={
            "batch_size": pl.Int64,
            "steps": pl.Float64,
            "steps_low": pl.Float64,
            "steps_high": pl.Float64,
            "runs": pl.Int64,
            "spacing": pl.Int64,
        },
        orient="row",
    )
    unit = SizeUnit(options.tokens_per_example)
    doubts = run_doubts(rows, curve, unit)
    sizes, steps = _arrays(curve)
    noise = coarse_noise(run_noise(logs), *(gap / mean for gap, mean in zip(spacings, means, strict=True)))
    data = CurveData(
        sizes,
        steps,
        ends,
        spacings,
        noise,
        doubts=doubts,
        failed=failed_sizes(rows),
        doubted=doubted_sizes(curve),
        unit=unit,
    )
    summary, refusal = _try_summary(data, options)
    return Analysis(None, None, curve, (), summary, refusal, doubts, unit=unit)


def _run_spacings(reached: pl.DataFrame, groups: list[tuple[int, Array]]) -> list[int]:
    """Return the evaluation spacing at every size: the largest given, or what all steps, or those of a size, show."""
    given: dict[int, float] = {}
    if "spacing" in reached.columns:
        for size, spacing in reached.select("batch_size", "spacing").drop_nulls().rows():
            given[int(size)] = max(spacing, given.get(int(size), 0.0))
    common = detect_spacing(np.concatenate([runs for _, runs in groups])) if groups else 0.0
    return [math.ceil(given.get(size, max(common, detect_spacing(runs)))) for size, runs in groups]


def check_complete(records: Records, workload: WorkloadName) -> None:
    """Raise AnalysisError if a workload has no COMPLETE trial; the message counts its trials by status."""
    counts = records.trials.group_by("status").len().sort("status").rows()
    if any(status == Status.COMPLETE.value for status, _ in counts):
        return
    if not counts:
        raise AnalysisError(f"{workload} has no trial yet, so there is nothing to analyze; wait for the first to end.")
    statuses = " and ".join(f"{count:,} {status}" for status, count in counts)
    raise AnalysisError(
        f"{workload} has no COMPLETE trial, so there is nothing to analyze. Found {statuses}; wait for trials to end, "
        "or search a space in which training does not diverge."
    )


def select_workload(records: Records, workload: WorkloadName) -> Records:
    """Return the records of one workload; UnknownNameError with the nearest names if there are none."""
    if workload not in records.workloads:
        names = [str(name) for name in records.workloads]
        raise UnknownNameError(f"There are no records of {one_line(workload)}; {suggest_names(str(workload), names)}")
    return records.workload(workload)


def stored_goal(records: Records, workload: WorkloadName) -> Goal | None:
    """Return the goal that a workload's studies were run for, if it is recorded and the same for all."""
    facts = records.workload(workload).studies[METADATA].struct.field("goal")
    texts = set(facts.drop_nulls())
    if len(texts) != 1:
        return None
    try:
        return Goal.parse(texts.pop())
    except SpecError:
        return None


def curve_study_points(outcomes: pl.DataFrame, results: pl.DataFrame) -> list[StudyPoint]:
    """Return the points of a curve with the trials behind them, by growing batch size, without unreached studies."""
    reached = outcomes.filter(pl.col("outcome") == Outcome.REACHED.value)
    values = {
        key[0]: group["steps_to_goal"].to_numpy().astype(np.float64) for key, group in reached.group_by("batch_size")
    }
    spacing = pl.col("spacing") if "spacing" in results.columns else pl.lit(0).alias("spacing")
    rows = results.filter(pl.col("steps").is_not_null()).sort("batch_size")
    return [
        StudyPoint(size, steps, Finishers(np.maximum(values[size], 1.0), trials), gap or 0)
        for size, steps, trials, gap in rows.select("batch_size", "steps", "trials", spacing).rows()
        if steps > 0  # a goal that is reached before the first step is no point of a curve
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


def _with_confirmations(
    curve: pl.DataFrame, records: Records, confirmed: Sequence[Confirmation], level: float
) -> pl.DataFrame:
    """Replace each point by its confirmation: the trial, its median steps and their interval."""
    searched = curve.with_columns(pl.col("steps").alias("search_steps"))
    if not confirmed:
        return searched.with_columns(pl.lit(None, dtype=pl.Int64).alias("seeds"))
    ends = confirmed_intervals(confirmed, level)
    rows = [(c.batch_size, c.trial_id, c.steps, c.seeds, *end) for c, end in zip(confirmed, ends, strict=True)]
    columns = ("batch_size", "trial_id", "steps", "seeds", "steps_low", "steps_high")
    points = pl.DataFrame(
        rows, schema=dict.fromkeys(columns[:4], pl.Int64) | dict.fromkeys(columns[4:], pl.Float64), orient="row"
    )
    names = [name for name in records.metaparameters if name in curve.columns]
    values = records.trials.select("batch_size", "trial_id", *names)
    replaced = points.join(values, on=["batch_size", "trial_id"], how="left")
    kept = searched.drop(*(name for name in replaced.columns if name != "batch_size" and name in searched.columns))
    examples = pl.col("steps") * pl.col("batch_size")
    return kept.join(replaced, on="batch_size", how="left", maintain_order="left").with_columns(
        (pl.col("epochs") * (examples / pl.col("examples"))).alias("epochs"),
        examples.alias("examples"),
        pl.lit(None, dtype=pl.String).alias("interval_note"),
        (pl.col("still_moves") & pl.col("seeds").is_null()).alias("still_moves"),
        pl.when(pl.col("seeds").is_null()).then("stability").otherwise(pl.lit(CONFIRMED)).alias("stability"),
    )


def _try_summary(data: CurveData, options: AnalysisOptions) -> tuple[CurveSummary | None, str | None]:
    try:
        return summarize(data, options.baseline, options.thresholds, options.resampling.level), None
    except AnalysisError as error:
        return None, str(error)


def _study_data(curve: pl.DataFrame, noise: Noise) -> CurveData:
    measured = curve.filter(pl.col("steps") > 0).sort("batch_size")
    sizes, steps = _arrays(measured)
    counts = measured["trials"].to_list()
    return CurveData(
        sizes=sizes,
        steps=steps,
        intervals=measured.select("steps_low", "steps_high").rows(),
        spacings=measured["spacing"].fill_null(0).to_list(),
        noise=noise,
        trials=(min(counts), max(counts)) if counts else None,
        failed=failed_sizes(curve),
        doubted=doubted_sizes(curve),
    )


def _arrays(curve: pl.DataFrame) -> tuple[Array, Array]:
    return curve["batch_size"].to_numpy().astype(np.float64), curve["steps"].to_numpy().astype(np.float64)
