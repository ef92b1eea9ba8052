"""Training curves: a metric against steps, all trials of a study faint and the best one bold (and Figure 18)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis import best_measurement, steps_to_result
from batchscale.errors import BatchscaleError
from batchscale.figures.edges import join_frames
from batchscale.figures.layout import (
    NORMAL,
    Chart,
    PanelSize,
    finish,
    inline,
    layered,
    missing_panel,
    panel_grid,
    panel_title,
)
from batchscale.figures.names import metaparameter_label, metric_label
from batchscale.figures.notes import note_frame, panel_notes, workload_literals, workload_values
from batchscale.figures.theme import LIGHT, Theme, series_colours
from batchscale.records.frames import Records
from batchscale.records.model import Status
from batchscale.spec import Goal, WorkloadName

MAX_TRIALS = 200  # drawn faintly; more would only be a darker cloud
MAX_POINTS = 80  # of one trial

TRAINING_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # null for a trial that is only background
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "metric": pl.String,
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "step": pl.Int64,
    "value": pl.Float64,
    "goal": pl.Float64,  # the goal's value where it is about this metric
    "note": pl.String,
}


@dataclass(frozen=True)
class TrainingPanel:
    """One study's curves of one metric.

    ``chosen`` are trials to draw bold, by label; None: the winner, or the trial with the best value where none reached
    the goal.
    """

    title: str
    workload: WorkloadName
    batch_size: int
    metric: str
    goal: Goal
    chosen: Mapping[str, int] | None = None
    background: bool = True


def training_frame(records: Records, panels: Iterable[TrainingPanel]) -> pl.DataFrame:
    """Steps and values of the trials of each panel, thinned: a frame of ``TRAINING_SCHEMA``."""
    frames = [_panel_frame(records, panel) for panel in panels]
    return join_frames(frames, TRAINING_SCHEMA, records)


def training_panels(records: Records, goal: Goal) -> list[TrainingPanel]:
    """A panel per study, of the goal's metric."""
    several = len(records.workloads) > 1
    return [
        TrainingPanel(
            f"{name}: batch size {size:,}" if several else f"batch size {size:,}", name, size, goal.metric, goal
        )
        for name in records.workloads
        for size in records.workload(name).studies["batch_size"].sort()
    ]


def best_by_value(
    records: Records, workload: WorkloadName, batch_size: int, goal: Goal, split_by: str
) -> dict[str, int]:
    """The trial with the best value of the goal's metric, for each value of a metaparameter, by its label."""
    study = records.workload(workload).filter(batch_size=batch_size)
    if study.studies.is_empty() or split_by not in study.metaparameters:
        return {}
    try:
        best = best_measurement(study, goal.metric, maximize=goal.maximize, by=[split_by])
    except BatchscaleError:
        return {}  # the panels will say that the metric is missing
    rows = best.drop_nulls(split_by).sort(split_by).select(split_by, "trial_id").rows()
    return {f"{metaparameter_label(split_by)} {value:g}": trial for value, trial in rows}


def plot_training(
    frame: pl.DataFrame, *, theme: Theme = LIGHT, title: str | None = None, columns: int = 3, size: PanelSize = NORMAL
) -> Chart:
    """A panel per study and metric."""
    charts: list[Chart] = [_panel(part, theme, size) for part in frame.partition_by("panel", maintain_order=True)]
    if not charts:
        charts = [missing_panel("", "no studies to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def _panel_frame(records: Records, panel: TrainingPanel) -> pl.DataFrame:
    name = panel.workload
    place = {"panel": panel.title, "metric": panel.metric, **workload_values(name)}
    study = records.workload(name).filter(batch_size=panel.batch_size)
    if study.studies.is_empty():
        return note_frame(TRAINING_SCHEMA, f"no records of {name} at batch size {panel.batch_size:,}", **place)
    measured = study.measurements_of(name)
    if panel.metric not in measured.collect_schema().names():
        return note_frame(TRAINING_SCHEMA, f"no {metric_label(panel.metric, unit=False)} was measured", **place)
    bold, notes = _bold_trials(study, panel)
    ids = study.trials.filter(pl.col("status") != Status.INCOMPLETE.value)["trial_id"].sort()
    thinned = ids.gather_every(max(1, -(-len(ids) // MAX_TRIALS))).to_list() if panel.background else []
    if panel.background and len(thinned) < len(ids):
        notes.append(f"every {-(-len(ids) // MAX_TRIALS)}th of {len(ids):,} trials is drawn")
    labels = {trial: label for label, trial in bold.items()}
    value = pl.col(panel.metric).cast(pl.Float64)
    rows = (
        measured.filter(pl.col("trial_id").is_in([*thinned, *labels]))
        .select("batch_size", "trial_id", "step", value.alias("value"))
        .collect()
        .pipe(_thin)
    )
    if rows["value"].is_finite().sum() == 0:
        return note_frame(TRAINING_SCHEMA, "nothing finite was measured", **place)
    series = pl.col("trial_id").replace_strict(labels, default=None, return_dtype=pl.String)
    limit = panel.goal.value if panel.goal.metric == panel.metric else None
    frame = rows.with_columns(
        pl.lit(panel.title).alias("panel"),
        series.alias("series"),
        *workload_literals(name),
        pl.lit(panel.metric).alias("metric"),
        pl.lit(limit, dtype=pl.Float64).alias("goal"),
        pl.lit(None, dtype=pl.String).alias("note"),
    ).select(pl.col(column).cast(kind) for column, kind in TRAINING_SCHEMA.items())
    return pl.concat([frame, *(note_frame(TRAINING_SCHEMA, note, **place) for note in notes)])


def _bold_trials(study: Records, panel: TrainingPanel) -> tuple[dict[str, int], list[str]]:
    if panel.chosen is not None:
        return dict(panel.chosen), [] if panel.chosen else ["no trial to draw"]
    try:
        winners = steps_to_result(study, panel.goal).drop_nulls("trial_id")
        best = best_measurement(study, panel.goal.metric, maximize=panel.goal.maximize)
    except BatchscaleError as error:
        return {}, [str(error)]
    if not winners.is_empty():
        trial = int(winners["trial_id"][0])
        return {f"fewest steps: trial {trial}": trial}, []
    if best.is_empty():
        return {}, ["no COMPLETE trial"]
    trial = int(best["trial_id"][0])
    return {f"best: trial {trial}": trial}, []


def _thin(rows: pl.DataFrame) -> pl.DataFrame:
    """At most about ``MAX_POINTS`` of each trial's measurements, its last one among them."""
    count, index = pl.len().over("trial_id"), pl.int_range(pl.len()).over("trial_id")
    every = (count / MAX_POINTS).ceil().cast(pl.Int64)
    return rows.filter((index % every == 0) | (index == count - 1))


def _panel(frame: pl.DataFrame, theme: Theme, size: PanelSize) -> Chart:
    title, metric = frame["panel"][0], frame["metric"][0]
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    notes = panel_notes(frame)
    if points.is_empty():
        return missing_panel(title, "; ".join(notes), theme, size)
    bold = points.drop_nulls("series")
    # A diverging trial would squeeze all others to a line: the axis shows what the bold and the middle of the rest do.
    low, high = _limits(points, bold)
    x = alt.X(
        "step:Q",
        scale=alt.Scale(nice=False, zero=True),
        axis=alt.Axis(title="step", labelExpr="datum.value == 0 ? '0' : format(datum.value, '~s')", tickCount=5),
    )
    y = alt.Y(
        "value:Q",
        scale=alt.Scale(domain=[low, high], nice=False),
        axis=alt.Axis(title=metric_label(metric), tickCount=6),
    )
    layers = [
        alt.Chart(inline(points.filter(pl.col("series").is_null())))
        .mark_line(strokeWidth=0.7, opacity=0.35, color=theme.poor, clip=True, aria=False)
        .encode(x=x, y=y, detail="trial_id:N"),
        *_goal_line(points, theme, y),
    ]
    if not bold.is_empty():
        layers.append(_bold_lines(bold, theme, x, y))
    return layered(layers, panel_title(title, notes, size.width), size)


def _limits(points: pl.DataFrame, bold: pl.DataFrame) -> tuple[float, float]:
    shown = pl.concat([points["value"], bold["value"]])
    low = float(shown.min())  # type: ignore[arg-type] # not empty
    ends = [float(points["value"].quantile(0.9) or low)]
    if not bold.is_empty():
        ends.append(float(bold["value"].quantile(0.98) or low))
    high = max(ends)
    room = (high - low or abs(high) or 1.0) * 0.05
    return low - room, high + room


def _goal_line(points: pl.DataFrame, theme: Theme, y: alt.Y) -> list[alt.Chart]:
    goal = points["goal"].drop_nulls()
    if goal.is_empty():
        return []
    chart = alt.Chart(alt.InlineData(values=[{"value": goal[0]}]))
    rule: alt.Chart = chart.mark_rule(strokeDash=[5, 4], color=theme.muted, clip=True, aria=False).encode(y=y)
    return [rule]


def _bold_lines(bold: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> alt.Chart:
    labels: Sequence[str] = bold["series"].unique(maintain_order=True).to_list()
    legend = alt.Legend(title=None, orient="top-right", offset=4, padding=3)
    scale = alt.Scale(domain=labels, range=series_colours(theme, len(labels)))
    lines: alt.Chart = (
        alt.Chart(inline(bold))
        .mark_line(strokeWidth=2, clip=True)
        .encode(x=x, y=y, color=alt.Color("series:N", sort=None, scale=scale, legend=legend), detail="trial_id:N")
    )
    return lines
