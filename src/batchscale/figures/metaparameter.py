"""The best metaparameters against batch size, beside the linear and square-root heuristics (Figures 8, 21, 22)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import altair as alt
import polars as pl

from batchscale.analysis import Heuristic, add_effective_learning_rate, steps_to_result
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.curve_frame import CurvePanel, Series
from batchscale.figures.curves import BATCH_SIZE, hollow_points
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
from batchscale.figures.names import metaparameter_label
from batchscale.figures.notes import NOT_REACHED, note_frame, panel_notes, workload_literals, workload_values
from batchscale.figures.theme import LIGHT, Theme
from batchscale.records.frames import Records

EFFECTIVE = "effective_learning_rate"
SCALED = (EFFECTIVE, "learning_rate")  # what the heuristics speak about

METAPARAMETER_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "metaparameter": pl.String,
    "batch_size": pl.Int64,
    "steps": pl.Float64,
    "trial_id": pl.Int64,
    "value": pl.Float64,  # of the trial that reached the goal in the fewest steps
    "linear": pl.Float64,  # value at the smallest batch size, times the ratio of batch sizes
    "square_root": pl.Float64,  # times its square root
    "note": pl.String,
}


def metaparameter_frame(
    records: Records,
    panels: Iterable[CurvePanel],
    metaparameter: str = EFFECTIVE,
    fixed_momentum: Mapping[str, float] | None = None,
) -> pl.DataFrame:
    """The winning trial's value of a metaparameter per batch size: a frame of ``METAPARAMETER_SCHEMA``.

    Args:
        records: Where the workloads are looked for.
        panels: Each with one series.
        metaparameter: A column of trials, or ``effective_learning_rate``.
        fixed_momentum: Momentum of workloads whose trials do not record it, because it was not tuned.
    """
    frames = [
        _series_frame(records, replace(panel, series=(series,)), metaparameter, fixed_momentum or {})
        for panel in panels
        for series in panel.series
    ]
    return join_frames(frames, METAPARAMETER_SCHEMA, records)


def with_effective_rate(trials: pl.DataFrame, fixed_momentum: float | None = None) -> pl.DataFrame:
    """Trials with the column ``effective_learning_rate``; ``fixed_momentum`` stands in where none is recorded."""
    if fixed_momentum is not None:
        known = pl.col("momentum") if "momentum" in trials.columns else pl.lit(None, dtype=pl.Float64)
        trials = trials.with_columns(known.fill_null(fixed_momentum).alias("momentum"))
    return add_effective_learning_rate(trials)


def plot_metaparameter(
    frame: pl.DataFrame,
    *,
    theme: Theme = LIGHT,
    title: str | None = None,
    columns: int = 3,
    size: PanelSize = NORMAL,
) -> Chart:
    """A panel per workload: the best value at each batch size, and what the heuristics would have chosen."""
    parts = frame.partition_by("panel", maintain_order=True)
    charts: list[Chart] = [_panel(part, theme, size) for part in parts]
    if not charts:
        charts = [missing_panel("", "no workloads to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def _series_frame(
    records: Records, panel: CurvePanel, metaparameter: str, fixed_momentum: Mapping[str, float]
) -> pl.DataFrame:
    series = panel.series[0]
    name = series.workload
    place = {"panel": panel.title, "goal": str(series.goal), "metaparameter": metaparameter, **workload_values(name)}
    chosen = records.workload(name)
    if chosen.studies.is_empty():
        return note_frame(METAPARAMETER_SCHEMA, f"no records of {name}", **place)
    if series.first_trials is not None:
        chosen = chosen.first_trials(series.first_trials)
    try:
        results = steps_to_result(chosen, series.goal, budget=series.budget)
    except BatchscaleError as error:
        return note_frame(METAPARAMETER_SCHEMA, str(error), **place)
    results = with_effective_rate(results, fixed_momentum.get(str(name)))
    if metaparameter not in results.columns or results[metaparameter].is_null().all():
        reached = results["steps"].drop_nulls().len()
        why = f"no {metaparameter_label(metaparameter)} is recorded" if reached else f"no trial reached {series.goal}"
        return note_frame(METAPARAMETER_SCHEMA, why, **place)
    return _with_heuristics(results, series, panel.title, metaparameter)


def _with_heuristics(results: pl.DataFrame, series: Series, title: str, metaparameter: str) -> pl.DataFrame:
    value = pl.col(metaparameter)
    first = results.drop_nulls(metaparameter).sort("batch_size").row(0, named=True)
    ratio = pl.col("batch_size") / first["batch_size"]
    scaled = metaparameter in SCALED
    start = pl.lit(first[metaparameter] if scaled else None, dtype=pl.Float64)
    missing = pl.when(pl.col("steps").is_null()).then(pl.lit(NOT_REACHED))
    return results.with_columns(
        pl.lit(title).alias("panel"),
        *workload_literals(series.workload),
        pl.lit(metaparameter).alias("metaparameter"),
        value.alias("value"),
        (start * ratio**Heuristic.LINEAR.power).alias("linear"),
        (start * ratio**Heuristic.SQUARE_ROOT.power).alias("square_root"),
        missing.alias("note"),
    ).select(pl.col(name).cast(kind) for name, kind in METAPARAMETER_SCHEMA.items())


def _panel(frame: pl.DataFrame, theme: Theme, size: PanelSize) -> Chart:
    title, metaparameter = frame["panel"][0], frame["metaparameter"][0]
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    notes = panel_notes(frame)
    if points.is_empty():
        return missing_panel(title, "; ".join(notes), theme, size)
    points = points.with_columns(pl.col("value").alias("drawn"))
    x_span = log_range(points["batch_size"])
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=log_axis(BATCH_SIZE, x_span))
    label = metaparameter_label(metaparameter)
    if metaparameter == "momentum" and points["value"].is_between(0, 1, closed="left").all():
        # Momentum lives near one: its axis is logarithmic in 1 - γ, and labelled with γ.
        points = points.with_columns((1 - pl.col("value")).alias("drawn"))
        y = _momentum_axis(points, label)
    elif points["value"].min() <= 0:  # type: ignore[operator] # a float here
        y = alt.Y("drawn:Q", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(title=label, tickCount=6))
    else:
        y_span = log_range(points["value"], margin=0.8)
        y = alt.Y("drawn:Q", scale=log_scale(y_span), axis=log_axis(label, y_span))
    base = alt.Chart(inline(points))
    best = theme.series[0]
    layers = [
        *_heuristics(points, theme, x, y),
        base.mark_line(strokeWidth=1.8, color=best).encode(x=x, y=y),
        base.mark_point(size=38, filled=True, opacity=1, color=best).encode(x=x, y=y, tooltip=_tooltips(label)),
        *(mark.encode(color=alt.value(best)) for mark in hollow_points(points, theme, x, y)),
    ]
    return layered(layers, panel_title(title, notes, size.width), size)


def _momentum_axis(points: pl.DataFrame, label: str) -> alt.Y:
    span = log_range(points["drawn"], 10, 0.1, 1)
    ticks = [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001]
    axis = alt.Axis(title=label, values=ticks, labelExpr="format(1 - datum.value, '.4~f')", labelOverlap="greedy")
    scale = alt.Scale(type="log", base=10, domain=span.domain[::-1], nice=False)
    return alt.Y("drawn:Q", scale=scale, axis=axis)


def _heuristics(points: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    if points["linear"].is_null().all():
        return []
    lines = pl.concat(
        [
            points.select("batch_size", pl.col(column).alias("drawn"), pl.lit(words).alias("heuristic"))
            for column, words in (("linear", "linear scaling"), ("square_root", "square-root scaling"))
        ]
    )
    names = ["linear scaling", "square-root scaling"]
    legend = alt.Legend(title=None, orient="bottom-right", offset=6, fillColor=theme.ground, padding=3)
    dash = alt.StrokeDash("heuristic:N", scale=alt.Scale(domain=names, range=[[6, 4], [2, 3]]), legend=legend)
    chart: alt.Chart = (
        alt.Chart(inline(lines))
        .mark_line(color=theme.muted, strokeWidth=1.3, clip=True, aria=False)
        .encode(x=x, y=y, strokeDash=dash)
    )
    return [chart]


def _tooltips(label: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title=label, format=".4g"),
        alt.Tooltip("steps:Q", title="steps to result", format=",.0f"),
        alt.Tooltip("trial_id:Q", title="trial"),
    ]
