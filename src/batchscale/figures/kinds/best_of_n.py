"""Steps to result of the best of n trials, a panel per study with quantiles."""

from collections.abc import Mapping

import altair as alt
import polars as pl

from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.robustness import best_of_n
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.frames import (
    WORKLOAD_SCHEMA,
    MissingDataError,
    empty_reason,
    join_frames,
    literals,
    panel_notes,
    rows_or_note,
    with_edges,
    workload_values,
)
from batchscale.figures.kind import FigureKind
from batchscale.figures.kinds.curves import STEPS
from batchscale.figures.layout import SMALL, Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import study_titles, workload_label
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

LOOK = Look(size=SMALL)
BEST_OF_FRAME_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # the batch size as text
    **WORKLOAD_SCHEMA,
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
    """Return steps to result of the best of n trials (``BEST_OF_FRAME_SCHEMA``), a panel per study or workload."""
    heads = study_titles(records.workloads) if per_study else dict.fromkeys(records.workloads)
    frames = [with_edges(_rows(records, name, goal, head), records, goal) for name, head in heads.items()]
    return join_frames(frames, BEST_OF_FRAME_SCHEMA)


def plot_best_of(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per study: the median, and between which steps nine of ten searches of n trials end."""
    return draw_panels(frame, _panel, look)


def _rows(records: Records, name: WorkloadName, goal: Goal, head: str | None) -> pl.DataFrame:
    """Return the rows of a workload, a panel per study where its title has a head."""
    title = workload_label(name)
    panel_values = {"panel": title, "goal": str(goal), **workload_values(name)}

    def make() -> pl.DataFrame:
        quantiles = best_of_n(trial_outcomes(records.workload(name), goal))
        if quantiles.is_empty():
            raise MissingDataError("no COMPLETE trial")
        size = pl.col("batch_size").map_elements(lambda b: f"{b:,}", return_dtype=pl.String)
        never = pl.col("median").is_null().all().over("batch_size")
        reached = (pl.col("reach_probability").max() > 0).over("batch_size")
        note = (
            pl.when(never & reached)
            .then(pl.lit("fewer than half of such searches reach the goal"))
            .when(never)
            .then(pl.lit("no trial reached the goal"))
        )
        panel = pl.lit(title) if head is None else pl.lit(f"{head} ") + size
        return quantiles.with_columns(
            *literals({**panel_values, "panel": ""}), (pl.lit("batch size ") + size).alias("series"), note.alias("note")
        ).with_columns(panel.alias("panel"))

    return rows_or_note(BEST_OF_FRAME_SCHEMA, panel_values, make)


def trial_axes(points: pl.DataFrame) -> tuple[alt.X, alt.Y, alt.Y]:
    """Return the axes: trials, median steps, and the lower quantile on the same scale."""
    x_span = log_range(points["n"], 2, 0.3)
    ends = pl.concat([points["median"], points["low"], points["high"]])
    y_span = log_range(ends, margin=0.5)
    x = alt.X("n:Q", scale=log_scale(x_span), axis=log_axis("trials in the search", x_span, 6))
    median, low = (
        alt.Y(f"{name}:Q", scale=log_scale(y_span), axis=log_axis(STEPS, y_span, 6)) for name in ("median", "low")
    )
    return x, median, low


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.filter(pl.col("median").is_not_null() | pl.col("low").is_not_null())
    if points.is_empty():
        return empty_reason(frame.drop("series"))
    x, y, low = trial_axes(points)
    colour = look.theme.series[0]
    between = alt.Chart(inline(points.drop_nulls(["low", "high"])))
    middle = alt.Chart(inline(points.drop_nulls("median")))
    layers = [
        between.mark_area(color=colour, opacity=1, fillOpacity=0.2, aria=False).encode(x=x, y=low, y2="high:Q"),
        middle.mark_line(color=colour, strokeWidth=1.8).encode(x=x, y=y),
        middle.mark_point(color=colour, filled=True, size=26, opacity=1).encode(x=x, y=y, tooltip=trial_tooltips()),
    ]
    return Drawn(layers, panel_notes(frame.drop("series")))


def trial_tooltips() -> list[alt.Tooltip]:
    """Return the tooltips of a point."""
    return [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("n:Q", title="trials"),
        alt.Tooltip("median:Q", title="median steps to result", format=",.0f"),
        alt.Tooltip("low:Q", title="5 %", format=",.0f"),
        alt.Tooltip("high:Q", title="95 %", format=",.0f"),
        alt.Tooltip("reach_probability:Q", title="chance to reach the goal", format=".0%"),
    ]


KIND = FigureKind(
    "steps to result had only n of a study's trials been run, with quantiles",
    lambda request: best_of_frame(request.counted, request.goal, per_study=True),
    plot_best_of,
    LOOK,
)
