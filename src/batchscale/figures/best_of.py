"""What fewer trials would have found: steps to result of the best of n trials, and steps against trials.

Two kinds of chart from one frame: a panel per study with quantiles (best-of-n), and all batch sizes of a workload in
one panel with medians (expected-steps), which shows where more trials would still pay.
"""

from collections.abc import Mapping

import altair as alt
import polars as pl

from batchscale.analysis import best_of_n, trial_outcomes
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.curves import STEPS
from batchscale.figures.edges import join_frames
from batchscale.figures.layout import (
    NORMAL,
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
from batchscale.figures.names import workload_label
from batchscale.figures.notes import note_frame, panel_notes, workload_values
from batchscale.figures.theme import LIGHT, Theme, series_colours
from batchscale.records.frames import Records
from batchscale.spec import Goal

BEST_OF_FRAME_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # the batch size in words
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "batch_size": pl.Int64,
    "n": pl.Int64,
    "reach_probability": pl.Float64,
    "low": pl.Float64,  # 5 % quantile
    "median": pl.Float64,
    "high": pl.Float64,  # 95 % quantile; null: with n trials the goal is missed more often than that
    "note": pl.String,
}


def best_of_frame(records: Records, goal: Goal, *, per_study: bool) -> pl.DataFrame:
    """Steps to result of the best of n trials: a frame of ``BEST_OF_FRAME_SCHEMA``, a panel per study or workload."""
    frames = []
    several = len(records.workloads) > 1
    for name in records.workloads:
        title = workload_label(name)
        place = {"panel": title, "goal": str(goal), **workload_values(name)}
        try:
            found = best_of_n(trial_outcomes(records.workload(name), goal))
        except BatchscaleError as error:
            frames.append(note_frame(BEST_OF_FRAME_SCHEMA, str(error), **place))
            continue
        if found.is_empty():
            frames.append(note_frame(BEST_OF_FRAME_SCHEMA, "no COMPLETE trial", **place))
            continue
        size = pl.col("batch_size").map_elements(lambda b: f"batch size {b:,}", return_dtype=pl.String)
        panel = (pl.lit(f"{title}: ") + size if several else size) if per_study else pl.lit(title)
        never = pl.col("median").is_null().all().over("batch_size")
        reached = (pl.col("reach_probability").max() > 0).over("batch_size")
        note = (
            pl.when(never & reached)
            .then(pl.lit("fewer than half of such searches reach the goal"))
            .when(never)
            .then(pl.lit("no trial reached the goal"))
        )
        rows = found.with_columns(panel.alias("panel"), size.alias("series"), note.alias("note"))
        frames.append(rows.select(pl.col(column).cast(kind) for column, kind in BEST_OF_FRAME_SCHEMA.items()))
    return join_frames(frames, BEST_OF_FRAME_SCHEMA, records)


def plot_best_of(
    frame: pl.DataFrame, *, theme: Theme = LIGHT, title: str | None = None, columns: int = 3, size: PanelSize = SMALL
) -> Chart:
    """A panel per study: the median, and between which steps nine of ten searches of n trials end."""
    charts: list[Chart] = [_study(part, theme, size) for part in frame.partition_by("panel", maintain_order=True)]
    if not charts:
        charts = [missing_panel("", "no studies to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def plot_expected_steps(
    frame: pl.DataFrame, *, theme: Theme = LIGHT, title: str | None = None, columns: int = 2, size: PanelSize = NORMAL
) -> Chart:
    """A panel per workload: the median steps to result against the number of trials, a line per batch size."""
    charts: list[Chart] = [_workload(part, theme, size) for part in frame.partition_by("panel", maintain_order=True)]
    if not charts:
        charts = [missing_panel("", "no workloads to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def _axes(points: pl.DataFrame) -> tuple[alt.X, alt.Y, alt.Y]:
    """The axes: trials, median steps, and the lower quantile on the same scale."""
    x_span = log_range(points["n"], 2, 0.3)
    ends = pl.concat([points["median"], points["low"], points["high"]])
    y_span = log_range(ends, margin=0.5)
    x = alt.X("n:Q", scale=log_scale(x_span), axis=log_axis("trials in the search", x_span, 6))
    median, low = (
        alt.Y(f"{name}:Q", scale=log_scale(y_span), axis=log_axis(STEPS, y_span, 6)) for name in ("median", "low")
    )
    return x, median, low


def _study(frame: pl.DataFrame, theme: Theme, size: PanelSize) -> Chart:
    points = frame.filter(pl.col("median").is_not_null() | pl.col("low").is_not_null())
    notes = panel_notes(frame.drop("series"))
    if points.is_empty():
        return missing_panel(frame["panel"][0], "; ".join(notes), theme, size)
    x, y, low = _axes(points)
    colour = theme.series[0]
    between = alt.Chart(inline(points.drop_nulls(["low", "high"])))
    middle = alt.Chart(inline(points.drop_nulls("median")))
    layers = [
        between.mark_area(color=colour, opacity=0.2, aria=False).encode(x=x, y=low, y2="high:Q"),
        middle.mark_line(color=colour, strokeWidth=1.8).encode(x=x, y=y),
        middle.mark_point(color=colour, filled=True, size=26, opacity=1).encode(x=x, y=y, tooltip=_tooltips()),
    ]
    return layered(layers, panel_title(frame["panel"][0], notes, size.width), size)


def _workload(frame: pl.DataFrame, theme: Theme, size: PanelSize) -> Chart:
    points = frame.drop_nulls("median")
    notes = panel_notes(frame)
    if points.is_empty():
        return missing_panel(frame["panel"][0], "; ".join(notes), theme, size)
    labels = points.sort("batch_size")["series"].unique(maintain_order=True).to_list()
    x, y, _ = _axes(points)
    scale = alt.Scale(domain=labels, range=series_colours(theme, len(labels), ordered=True))
    colour = alt.Color("series:N", sort=None, scale=scale, legend=alt.Legend(title=None, orient="right"))
    base = alt.Chart(inline(points))
    layers = [
        base.mark_line(strokeWidth=1.6).encode(x=x, y=y, color=colour, detail="series:N"),
        base.mark_point(filled=True, size=24, opacity=1).encode(x=x, y=y, color=colour, tooltip=_tooltips()),
    ]
    return layered(layers, panel_title(frame["panel"][0], notes, size.width), size)


def _tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("n:Q", title="trials"),
        alt.Tooltip("median:Q", title="median steps to result", format=",.0f"),
        alt.Tooltip("low:Q", title="5 %", format=",.0f"),
        alt.Tooltip("high:Q", title="95 %", format=",.0f"),
        alt.Tooltip("reach_probability:Q", title="chance to reach the goal", format=".0%"),
    ]
