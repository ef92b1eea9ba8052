"""Each trial's best validation value against its effective learning rate (Figure 20)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis import best_per_trial
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.edges import join_frames
from batchscale.figures.layout import (
    SMALL,
    Chart,
    PanelSize,
    finish,
    inline,
    layered,
    missing_panel,
    panel_grid,
    panel_title,
)
from batchscale.figures.metaparameter import EFFECTIVE, with_effective_rate
from batchscale.figures.names import metaparameter_label, metric_label
from batchscale.figures.notes import missing_words, note_frame, panel_notes, workload_literals, workload_values
from batchscale.figures.theme import LIGHT, Theme
from batchscale.figures.trial_map import STAR
from batchscale.records.frames import Records
from batchscale.records.model import Status
from batchscale.spec import Goal, WorkloadName

EFFECTIVE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "metric": pl.String,
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "effective_learning_rate": pl.Float64,
    "value": pl.Float64,  # the best the trial measured
    "best": pl.Boolean,
    "note": pl.String,
}


@dataclass(frozen=True)
class EffectivePanel:
    """One study, the goal that says which metric is meant, and its momentum where trials do not record one."""

    title: str
    workload: WorkloadName
    batch_size: int
    goal: Goal
    fixed_momentum: float | None = None


def effective_frame(records: Records, panels: Iterable[EffectivePanel]) -> pl.DataFrame:
    """Rate and best value of every COMPLETE trial: a frame of ``EFFECTIVE_SCHEMA``."""
    frames = [_panel_frame(records, panel) for panel in panels]
    return join_frames(frames, EFFECTIVE_SCHEMA, records)


def effective_panels(records: Records, goal: Goal) -> list[EffectivePanel]:
    """A panel per study."""
    several = len(records.workloads) > 1
    return [
        EffectivePanel(f"{name}: batch size {size:,}" if several else f"batch size {size:,}", name, size, goal)
        for name in records.workloads
        for size in records.workload(name).studies["batch_size"].sort()
    ]


def plot_effective(
    frame: pl.DataFrame, *, theme: Theme = LIGHT, title: str | None = None, columns: int = 4, size: PanelSize = SMALL
) -> Chart:
    """A panel per study."""
    charts: list[Chart] = [_panel(part, theme, size) for part in frame.partition_by("panel", maintain_order=True)]
    if not charts:
        charts = [missing_panel("", "no studies to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def _panel_frame(records: Records, panel: EffectivePanel) -> pl.DataFrame:
    name, metric = panel.workload, panel.goal.metric
    place = {"panel": panel.title, "metric": metric, **workload_values(name)}
    study = records.workload(name).filter(batch_size=panel.batch_size, status=Status.COMPLETE.value)
    if study.studies.is_empty():
        return note_frame(EFFECTIVE_SCHEMA, f"no records of {name} at batch size {panel.batch_size:,}", **place)
    try:
        values = best_per_trial(study, name, metric, maximize=panel.goal.maximize)
    except BatchscaleError as error:
        return note_frame(EFFECTIVE_SCHEMA, str(error), **place)
    trials = with_effective_rate(study.trials, panel.fixed_momentum).join(
        values, on=["batch_size", "trial_id"], how="left"
    )
    if EFFECTIVE not in trials.columns:
        trials = trials.with_columns(pl.lit(None, dtype=pl.Float64).alias(EFFECTIVE))
    known = trials.drop_nulls([EFFECTIVE, "value"])
    if known.is_empty():
        why = (
            "no finite value was measured"
            if trials["value"].is_null().all()
            else "no learning rate and momentum are recorded"
        )
        return note_frame(EFFECTIVE_SCHEMA, why if len(trials) else "no COMPLETE trial", **place)
    rank = pl.struct(pl.col("value") * (-1 if panel.goal.maximize else 1), "trial_id").rank("ordinal")
    return known.with_columns(
        pl.lit(panel.title).alias("panel"),
        *workload_literals(name),
        pl.lit(metric).alias("metric"),
        (rank == 1).alias("best"),
        pl.lit(None, dtype=pl.String).alias("note"),
    ).select(pl.col(column).cast(kind) for column, kind in EFFECTIVE_SCHEMA.items())


def _panel(frame: pl.DataFrame, theme: Theme, size: PanelSize) -> Chart:
    title, metric = frame["panel"][0], frame["metric"][0]
    points = frame.drop_nulls("value").filter(pl.col("effective_learning_rate") > 0)
    notes = panel_notes(frame)
    if points.is_empty():
        return missing_panel(title, missing_words(frame, "no positive learning rate"), theme, size)
    span = log_range(points["effective_learning_rate"], 10, 0.15, 1)
    x = alt.X(
        "effective_learning_rate:Q", scale=log_scale(span), axis=log_axis(metaparameter_label(EFFECTIVE), span, 4)
    )
    y = alt.Y(
        "value:Q",
        scale=alt.Scale(zero=False, padding=8),
        axis=alt.Axis(title=metric_label(metric, unit=False), tickCount=5),
    )
    tips = [
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("effective_learning_rate:Q", title="effective learning rate", format=".4g"),
        alt.Tooltip("value:Q", title=metric_label(metric), format=".5g"),
    ]
    dots = alt.Chart(inline(points.filter(~pl.col("best"))))
    star = alt.Chart(inline(points.filter("best")))
    layers = [
        dots.mark_point(size=18, filled=True, opacity=0.75, color=theme.good).encode(x=x, y=y, tooltip=tips),
        star.mark_point(
            shape=STAR, size=120, filled=True, fill=theme.star, stroke=theme.text, strokeWidth=0.8, opacity=1
        ).encode(x=x, y=y, tooltip=tips),
    ]
    return layered(layers, panel_title(title, notes, size.width), size)
