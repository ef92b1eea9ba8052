"""The frame behind every chart of steps to result: the series of each panel, and their points.

Panels and series are described by values, so that a recipe of a published figure is data. Missing data (a workload,
a metric, a goal that nothing reached) becomes a row with a note, never a gap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.confirmation import use_confirmations
from batchscale.analysis.curves import curve_points
from batchscale.analysis.regimes import Baseline, baseline_examples
from batchscale.analysis.results import steps_to_result
from batchscale.figures.frames import (
    NOT_REACHED,
    MissingDataError,
    find_studies,
    join_frames,
    literals,
    rows_or_note,
    with_edges,
    workload_values,
)
from batchscale.figures.names import differing_labels, goal_label, none_reached, workload_label
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

SERIES_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "batch_size": pl.Int64,  # null in a row that is only a note
    "steps": pl.Float64,  # null: the goal was not reached
    "value": pl.Float64,  # what is drawn: steps, or steps over those at the normalising batch size
    "perfect": pl.Float64,  # the line of perfect scaling at this batch size
    "baseline": pl.String,  # what that line goes through: robust or first
    "trial_id": pl.Int64,
    "trials": pl.Int64,
    "reached": pl.Int64,
    "infeasible": pl.Int64,
    "note": pl.String,  # what is missing here
}


@dataclass(frozen=True)
class Series:
    """One curve: a workload, a goal, the number of first COMPLETE trials that count (None: all), its label."""

    workload: WorkloadName
    goal: Goal
    label: str = ""
    first_trials: int | None = None
    budget: Budget | None = None


@dataclass(frozen=True)
class CurvePanel:
    """Some curves in one panel; ``normalise_at`` divides each by its steps at that batch size."""

    title: str
    series: tuple[Series, ...]
    normalise_at: int | None = None


def series_frame(
    records: Records, panels: Iterable[CurvePanel], *, baseline: Baseline = Baseline.ROBUST
) -> pl.DataFrame:
    """Return the points of all panels: a frame of ``SERIES_SCHEMA``, series in the order they are given."""
    frames = [
        with_edges(_rows(records, panel, series, baseline), records, series.goal, series.first_trials)
        for panel in panels
        for series in panel.series
    ]
    return join_frames(frames, SERIES_SCHEMA)


def points_frame(points: pl.DataFrame, panel: CurvePanel, baseline: Baseline = Baseline.ROBUST) -> pl.DataFrame:
    """Return a frame of ``SERIES_SCHEMA`` from bare points (``batch_size``, ``steps``), such as published ones."""
    rows = points.select(pl.col("batch_size").cast(pl.Int64), pl.col("steps").cast(pl.Float64)).sort("batch_size")
    blank = {"trial_id": pl.Int64, "trials": pl.Int64, "reached": pl.Int64, "infeasible": pl.Int64}
    filled = rows.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in blank.items())
    panel_values = _panel_values(panel, panel.series[0])
    return rows_or_note(
        SERIES_SCHEMA,
        panel_values,
        lambda: _complete(filled, panel, panel.series[0], baseline).with_columns(literals(panel_values)),
    )


def workload_panels(
    records: Records, goals: Sequence[Goal], *, first_trials: int | None = None, budget: Budget | None = None
) -> list[CurvePanel]:
    """Return a panel per workload, with one curve per goal."""
    return [
        CurvePanel(
            workload_label(name),
            tuple(Series(name, goal, goal_label(goal), first_trials, budget) for goal in goals),
        )
        for name in records.workloads
    ]


def joint_panel(
    records: Records, goal: Goal, *, normalise_at: int | None = None, first_trials: int | None = None
) -> CurvePanel:
    """Return one panel with a curve per workload, labelled by the differences between the workloads."""
    labels = differing_labels(records.workloads)
    series = tuple(Series(name, goal, label, first_trials) for name, label in labels.items())
    return CurvePanel(f"steps to {goal_label(goal)}", series, normalise_at)


def _rows(records: Records, panel: CurvePanel, series: Series, baseline: Baseline) -> pl.DataFrame:
    panel_values = _panel_values(panel, series)

    def make() -> pl.DataFrame:
        selected = find_studies(records, series.workload, first_trials=series.first_trials)
        results = steps_to_result(selected, series.goal, budget=series.budget)
        if series.first_trials is None and series.budget is None:
            results = use_confirmations(results, selected, series.goal)
        return _complete(results, panel, series, baseline).with_columns(literals(panel_values))

    return rows_or_note(SERIES_SCHEMA, panel_values, make)


def _panel_values(panel: CurvePanel, series: Series) -> dict[str, object]:
    label = series.label or workload_label(series.workload)
    return {"panel": panel.title, "series": label, **workload_values(series.workload), "goal": str(series.goal)}


def _complete(rows: pl.DataFrame, panel: CurvePanel, series: Series, baseline: Baseline) -> pl.DataFrame:
    """Return steps per batch size with the value that is drawn, the line of perfect scaling, and notes."""
    reached = rows.drop_nulls("steps")
    if reached.is_empty():
        raise MissingDataError(f"{none_reached(int(rows['trials'].sum() or 0))} {series.goal}")
    scale, problem = 1.0, None
    if panel.normalise_at is not None:
        at = reached.filter(pl.col("batch_size") == panel.normalise_at)["steps"]
        scale = float(at[0]) if len(at) else 0.0
        if not len(at):
            problem = f"goal not reached at the normalising batch size {panel.normalise_at:,}"
    examples = _perfect_examples(reached, baseline)
    value = pl.col("steps").cast(pl.Float64) / scale if scale else pl.lit(None, dtype=pl.Float64)
    note = pl.when(pl.col("steps").is_null()).then(pl.lit(NOT_REACHED)).otherwise(pl.lit(problem))
    return rows.with_columns(
        value.alias("value"),
        (examples / pl.col("batch_size") / (scale or 1.0)).alias("perfect"),
        pl.lit(baseline.value).alias("baseline"),
        note.alias("note"),
    )


def _perfect_examples(reached: pl.DataFrame, baseline: Baseline) -> float:
    return baseline_examples(*curve_points(reached), baseline)
