"""Studies split by the value of one metaparameter, such as label smoothing (Figures 7 and 19).

Two kinds of panel: the best measured value per batch size, and the steps to a goal per batch size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis import best_measurement, steps_to_result
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.curves import BATCH_SIZE, STEPS, series_scales
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
from batchscale.figures.names import metaparameter_label, metric_label, workload_label
from batchscale.figures.notes import NOT_REACHED, note_frame, panel_notes, workload_literals, workload_values
from batchscale.figures.theme import LIGHT, Theme
from batchscale.records.frames import Records
from batchscale.spec import Goal, WorkloadName

SPLIT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # "label smoothing 0.1"
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "quantity": pl.String,  # the metric whose best value is shown, or "steps"
    "goal": pl.String,  # null where the best value is shown
    "split_by": pl.String,
    "split_value": pl.Float64,
    "batch_size": pl.Int64,
    "value": pl.Float64,
    "trial_id": pl.Int64,
    "note": pl.String,
}


@dataclass(frozen=True)
class SplitPanel:
    """A workload split by a metaparameter: steps to ``goal``, or with ``best`` the best value of its metric."""

    title: str
    workload: WorkloadName
    goal: Goal
    split_by: str
    best: bool
    first_trials: int | None = None


def split_frame(records: Records, panels: Iterable[SplitPanel]) -> pl.DataFrame:
    """The points of all panels: a frame of ``SPLIT_SCHEMA``."""
    frames = [_panel_frame(records, panel) for panel in panels]
    return join_frames(frames, SPLIT_SCHEMA, records)


def split_panels(records: Records, goal: Goal, split_by: str, first_trials: int | None = None) -> list[SplitPanel]:
    """Both kinds of panel for every workload."""
    return [
        SplitPanel(f"{workload_label(name)}: {words}", name, goal, split_by, best, first_trials)
        for name in records.workloads
        for best, words in ((True, "best value"), (False, f"steps to {goal}"))
    ]


def plot_split(
    frame: pl.DataFrame, *, theme: Theme = LIGHT, title: str | None = None, columns: int = 2, size: PanelSize = NORMAL
) -> Chart:
    """A line per value of the metaparameter in every panel."""
    charts: list[Chart] = [_panel(part, theme, size) for part in frame.partition_by("panel", maintain_order=True)]
    if not charts:
        charts = [missing_panel("", "no workloads to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def _panel_frame(records: Records, panel: SplitPanel) -> pl.DataFrame:
    name, metric = panel.workload, panel.goal.metric
    place = {
        "panel": panel.title,
        "quantity": metric if panel.best else "steps",
        "goal": None if panel.best else str(panel.goal),
        "split_by": panel.split_by,
        **workload_values(name),
    }
    chosen = records.workload(name)
    if chosen.studies.is_empty():
        return note_frame(SPLIT_SCHEMA, f"no records of {name}", **place)
    if panel.first_trials is not None:
        chosen = chosen.first_trials(panel.first_trials)
    if panel.split_by not in chosen.metaparameters or chosen.trials[panel.split_by].is_null().all():
        return note_frame(SPLIT_SCHEMA, f"no {metaparameter_label(panel.split_by)} is recorded", **place)
    try:
        if panel.best:
            found = best_measurement(chosen, metric, maximize=panel.goal.maximize, by=[panel.split_by])
        else:
            found = steps_to_result(chosen, panel.goal, by=[panel.split_by]).rename({"steps": "value"})
    except BatchscaleError as error:
        return note_frame(SPLIT_SCHEMA, str(error), **place)
    words = metaparameter_label(panel.split_by)
    label = pl.col(panel.split_by).map_elements(lambda value: f"{words} {value:g}", return_dtype=pl.String)
    missing = pl.when(pl.col("value").is_null()).then(pl.lit(NOT_REACHED))
    return (
        found.filter(pl.col(panel.split_by).is_not_null())
        .with_columns(
            pl.lit(panel.title).alias("panel"),
            label.alias("series"),
            *workload_literals(name),
            pl.lit(place["quantity"]).alias("quantity"),
            pl.lit(place["goal"], dtype=pl.String).alias("goal"),
            pl.lit(panel.split_by).alias("split_by"),
            pl.col(panel.split_by).alias("split_value"),
            missing.alias("note"),
        )
        .select(pl.col(column).cast(kind) for column, kind in SPLIT_SCHEMA.items())
        .sort("split_value", "batch_size")
    )


def _panel(frame: pl.DataFrame, theme: Theme, size: PanelSize) -> Chart:
    title, quantity = frame["panel"][0], frame["quantity"][0]
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    notes = panel_notes(frame)
    if points.is_empty():
        return missing_panel(title, "; ".join(notes), theme, size)
    labels = points.sort("split_value")["series"].unique(maintain_order=True).to_list()
    colour, shape = series_scales(labels, theme, False, corner="bottom-left" if quantity == "steps" else "top-right")
    x_span = log_range(points["batch_size"])
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=log_axis(BATCH_SIZE, x_span))
    if quantity == "steps":
        y_span = log_range(points["value"], margin=0.6)
        y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(STEPS, y_span))
    else:
        axis = alt.Axis(title=f"best {metric_label(quantity)}", tickCount=6)
        # Room above the lines for the legend.
        top = float(points["value"].max())  # type: ignore[arg-type] # not empty
        low = float(points["value"].min())  # type: ignore[arg-type] # not empty
        room = (top - low or abs(top) or 1.0) * 0.08
        scale = alt.Scale(domain=[low - room, top + room * (2 + 1.2 * len(labels))], nice=False)
        y = alt.Y("value:Q", scale=scale, axis=axis)
    base = alt.Chart(inline(points))
    tips = [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title=STEPS if quantity == "steps" else metric_label(quantity), format=",.5~g"),
        alt.Tooltip("trial_id:Q", title="trial"),
    ]
    layers = [
        base.mark_line(strokeWidth=1.7).encode(x=x, y=y, color=colour, detail="series:N"),
        base.mark_point(size=34, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return layered(layers, panel_title(title, notes, size.width), size)
