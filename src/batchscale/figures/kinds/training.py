"""Training curves: a metric against steps, all trials of a study faint and the best one bold (and Figure 18)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis.budgets import best_measurement
from batchscale.analysis.results import steps_to_result
from batchscale.errors import BatchscaleError
from batchscale.figures.frames import (
    WORKLOAD_SCHEMA,
    MissingDataError,
    empty_reason,
    find_studies,
    join_frames,
    literals,
    note_frame,
    panel_notes,
    rows_or_note,
    with_edges,
    workload_values,
)
from batchscale.figures.kind import FigureKind
from batchscale.figures.kinds.curves import legend_under
from batchscale.figures.layout import Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import metaparameter_label, metric_label, study_titles
from batchscale.figures.theme import Theme, series_colours
from batchscale.formatting import metaparameter_text
from batchscale.records.frames import Records
from batchscale.records.model import Status
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

LOOK = Look(columns=3)
MAX_TRIALS = 200  # drawn faintly; more would only be a darker cloud
MAX_POINTS = 80  # of one trial

TRAINING_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # null for a trial that is only background
    **WORKLOAD_SCHEMA,
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

    ``bold_trials`` are drawn bold, by label; None: the winner, or the trial with the best value where none reached
    the goal.
    """

    title: str
    workload: WorkloadName
    batch_size: int
    metric: str
    goal: Goal
    bold_trials: Mapping[str, int] | None = None
    background: bool = True


def training_frame(records: Records, panels: Iterable[TrainingPanel]) -> pl.DataFrame:
    """Return steps and values of the trials of each panel, thinned: a frame of ``TRAINING_SCHEMA``."""
    frames = [with_edges(_rows(records, panel), records, panel.goal) for panel in panels]
    return join_frames(frames, TRAINING_SCHEMA)


def training_panels(records: Records, goal: Goal) -> list[TrainingPanel]:
    """Return a panel per study, of the goal's metric."""
    heads = study_titles(records.workloads)
    return [
        TrainingPanel(f"{heads[name]} {size:,}", name, size, goal.metric, goal)
        for name in records.workloads
        for size in records.workload(name).studies["batch_size"].sort()
    ]


def best_by_value(
    records: Records, workload: WorkloadName, batch_size: int, goal: Goal, split_by: str
) -> dict[str, int]:
    """Return the trial with the best value of the goal's metric, for each value of a metaparameter, by its label."""
    study = records.workload(workload).filter(batch_size=batch_size)
    if study.studies.is_empty() or split_by not in study.metaparameters:
        return {}
    try:
        best = best_measurement(study, goal.metric, maximize=goal.maximize, by=[split_by])
    except BatchscaleError:
        return {}  # the panels have a note on the missing metric
    rows = best.drop_nulls(split_by).sort(split_by).select(split_by, "trial_id").rows()
    return {f"{metaparameter_label(split_by)} {metaparameter_text(value)}": trial for value, trial in rows}


def plot_training(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per study and metric."""
    goals = frame["goal"].drop_nulls().unique()
    return draw_panels(frame, _panel, look, notes=[f"dashed: the goal, {goals[0]:g}"] if len(goals) == 1 else ())


def _rows(records: Records, panel: TrainingPanel) -> pl.DataFrame:
    panel_values = {"panel": panel.title, "metric": panel.metric, **workload_values(panel.workload)}
    notes: list[str] = []
    rows = rows_or_note(
        TRAINING_SCHEMA, panel_values, lambda: _curves(records, panel, notes).with_columns(literals(panel_values))
    )
    return pl.concat([rows, *(note_frame(TRAINING_SCHEMA, note, **panel_values) for note in notes)])


def _curves(records: Records, panel: TrainingPanel, notes: list[str]) -> pl.DataFrame:
    """Return the measurements of a panel's trials; notes of the panel are added to ``notes``."""
    study = find_studies(records, panel.workload, panel.batch_size)
    measured = study.measurements_of(panel.workload)
    if panel.metric not in measured.collect_schema().names():
        raise MissingDataError(f"no {metric_label(panel.metric, unit=False)} was measured")
    bold, problems = _bold_trials(study, panel)
    ids = study.trials.filter(pl.col("status") != Status.INCOMPLETE.value)["trial_id"].sort()
    every = max(1, -(-len(ids) // MAX_TRIALS))
    faint = ids.gather_every(every).to_list() if panel.background else []
    labels = {trial: label for label, trial in bold.items()}
    rows = (
        measured.filter(pl.col("trial_id").is_in([*faint, *labels]))
        .select("batch_size", "trial_id", "step", pl.col(panel.metric).cast(pl.Float64).alias("value"))
        .collect()
        .pipe(_thin)
    )
    if rows["value"].is_finite().sum() == 0:
        raise MissingDataError("nothing finite was measured")
    notes += problems
    if panel.background and every > 1:
        notes.append(f"every {every}th of {len(ids):,} trials is drawn")
    limit = panel.goal.value if panel.goal.metric == panel.metric else None
    return rows.with_columns(
        pl.col("trial_id").replace_strict(labels, default=None, return_dtype=pl.String).alias("series"),
        pl.lit(limit, dtype=pl.Float64).alias("goal"),
        pl.lit(None, dtype=pl.String).alias("note"),
    )


def _bold_trials(study: Records, panel: TrainingPanel) -> tuple[dict[str, int], list[str]]:
    if panel.bold_trials is not None:
        return dict(panel.bold_trials), [] if panel.bold_trials else ["no trial to draw"]
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
    """Return at most about ``MAX_POINTS`` of each trial's measurements, its last one among them."""
    count, index = pl.len().over("trial_id"), pl.int_range(pl.len()).over("trial_id")
    every = (count / MAX_POINTS).ceil().cast(pl.Int64)
    return rows.filter((index % every == 0) | (index == count - 1))


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    metric, theme = frame["metric"][0], look.theme
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    if points.is_empty():
        return empty_reason(frame)
    bold = points.drop_nulls("series")
    # A diverging trial would squeeze all others to a line: the axis shows what the bold and the middle of the rest do.
    low, high = value_limits(points, bold)
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
    # Lines are cut in the data and fade by their stroke: a clip or an opacity per line costs a renderer a layer of the
    # whole picture each, which made minutes of a second.
    lines = cut_lines(points, low, high)
    layers = [
        alt.Chart(inline(lines.filter(pl.col("series").is_null())))
        .mark_line(strokeWidth=0.7, strokeOpacity=0.35, color=theme.poor, aria=False)
        .encode(x=x, y=y, detail="trial_id:N"),
        *goal_line(points, theme, y, low, high),
    ]
    if not bold.is_empty():
        layers.append(_bold_lines(lines.drop_nulls("series"), look, x, y))
    return Drawn(layers, panel_notes(frame))


def value_limits(points: pl.DataFrame, bold: pl.DataFrame) -> tuple[float, float]:
    """Return the ends of the axis of values: all of what is bold, and the middle of the rest."""
    values = pl.concat([points["value"], bold["value"]])
    low = float(values.min())  # type: ignore[arg-type] # not empty
    ends = [float(points["value"].quantile(0.9) or low)]
    if not bold.is_empty():
        ends.append(float(bold["value"].quantile(0.98) or low))
    high = max(ends)
    room = (high - low or abs(high) or 1.0) * 0.05
    return low - room, high + room


def cut_lines(points: pl.DataFrame, low: float, high: float) -> pl.DataFrame:
    """Return the lines of all trials with what lies above or below the ends cut off, exactly where they cross them.

    A value outside becomes null, which breaks the line; where a line crosses an end, a point is added.
    """
    ordered = points.sort("trial_id", "step").with_columns(pl.col("step").cast(pl.Float64))
    after = [pl.col(name).shift(-1).over("trial_id").alias(f"next_{name}") for name in ("step", "value")]
    pairs = ordered.with_columns(after)
    crossings = [
        pairs.filter((pl.col("value") - end) * (pl.col("next_value") - end) < 0).with_columns(
            pl.col("step")
            + (end - pl.col("value"))
            / (pl.col("next_value") - pl.col("value"))
            * (pl.col("next_step") - pl.col("step")),
            pl.lit(end).alias("value"),
        )
        for end in (low, high)
    ]
    inside = pl.when(pl.col("value").is_between(low, high)).then(pl.col("value")).alias("value")
    return pl.concat([pairs.with_columns(inside), *crossings]).select(points.columns).sort("trial_id", "step")


def goal_line(points: pl.DataFrame, theme: Theme, y: alt.Y, low: float, high: float) -> list[alt.Chart]:
    """Return the goal as a dashed line, where it lies between the ends."""
    goal = points["goal"].drop_nulls()
    if goal.is_empty() or not low <= goal[0] <= high:
        return []
    chart = alt.Chart(alt.InlineData(values=[{"value": goal[0]}]))
    rule: alt.Chart = chart.mark_rule(strokeDash=[5, 4], color=theme.muted, aria=False).encode(y=y)
    return [rule]


def _bold_lines(bold: pl.DataFrame, look: Look, x: alt.X, y: alt.Y) -> alt.Chart:
    labels: Sequence[str] = bold["series"].unique(maintain_order=True).to_list()
    scale = alt.Scale(domain=labels, range=series_colours(look.theme, len(labels)))
    legend = legend_under(labels, look.size.width)
    lines: alt.Chart = (
        alt.Chart(inline(bold))
        .mark_line(strokeWidth=2)
        .encode(x=x, y=y, color=alt.Color("series:N", sort=None, scale=scale, legend=legend), detail="trial_id:N")
    )
    return lines


KIND = FigureKind(
    "the goal's metric against steps: all trials faint, the best one bold",
    lambda request: training_frame(request.counted, training_panels(request.counted, request.goal)),
    plot_training,
    LOOK,
)
