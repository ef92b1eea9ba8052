"""Several curves of steps to result in a panel: plain, normalised, or a family over goals."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from batchscale.figures.axes import LogRange, log_axis, log_range, log_scale
from batchscale.figures.edges import at_edge
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
from batchscale.figures.notes import panel_notes
from batchscale.figures.theme import LIGHT, Theme, series_colours

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
BATCH_SIZE = "batch size (examples)"
STEPS = "steps to result"
NORMALISED = "steps to result, normalised"


def plot_curves(
    frame: pl.DataFrame,
    *,
    theme: Theme = LIGHT,
    title: str | None = None,
    normalised: bool = False,
    ordered: bool = False,
    columns: int = 3,
    size: PanelSize = NORMAL,
    legend: bool = True,
) -> Chart:
    """Panels of curves on log2 axes, with the perfect scaling of each as a dashed line.

    Args:
        frame: Points of ``CURVE_SCHEMA``.
        theme: Colours.
        title: Over all panels.
        normalised: Whether ``value`` was divided by the steps at a batch size.
        ordered: Whether the series have an order (goals), and so colours along a ramp.
        columns: Panels in a row.
        size: Of each panel.
        legend: Whether a panel names its series; a single one is named by the panel.
    """
    charts: list[Chart] = [
        _panel(part, theme, normalised, ordered, size, legend)
        for part in frame.partition_by("panel", maintain_order=True)
    ]
    if not charts:
        charts = [missing_panel("", "no workloads to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def _panel(frame: pl.DataFrame, theme: Theme, normalised: bool, ordered: bool, size: PanelSize, legend: bool) -> Chart:
    title = frame["panel"][0]
    points = frame.drop_nulls("value")
    notes = panel_notes(frame)
    if points.is_empty():
        return missing_panel(title, "; ".join(notes), theme, size)
    labels = points["series"].unique(maintain_order=True).to_list()
    x_span = log_range(points["batch_size"])
    y_span = log_range(points["value"], margin=0.6)
    colour, shape = series_scales(labels, theme, ordered, legend=legend and len(labels) > 1)
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=log_axis(BATCH_SIZE, x_span))
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(NORMALISED if normalised else STEPS, y_span))
    base = alt.Chart(inline(points))
    perfect = perfect_lines(points, theme, x, y_span)
    lines = base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, detail="series:N")
    dots = base.mark_point(size=34, filled=True, opacity=1).encode(
        x=x, y=y, color=colour, shape=shape, tooltip=curve_tooltips(normalised)
    )
    hollow = [mark.encode(color=colour, shape=shape) for mark in hollow_points(points, theme, x, y)]
    return layered([perfect, lines, dots, *hollow], panel_title(title, notes, size.width), size)


def hollow_points(points: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Over the points whose best trial was left at an edge of its search space: hollow ones, which say so."""
    flagged = at_edge(points)
    if flagged.is_empty():
        return []
    shown = [
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title="value", format=",.6~g"),
        alt.Tooltip("edge:N", title="best trial at an edge"),
    ]
    marks: alt.Chart = (
        alt.Chart(inline(flagged))
        .mark_point(size=44, filled=False, fill=theme.ground, opacity=1, strokeWidth=1.8)
        .encode(x=x, y=y, tooltip=shown)
    )
    return [marks]


def series_scales(
    labels: Sequence[str], theme: Theme, ordered: bool, *, legend: bool = True, corner: str = "bottom-left"
) -> tuple[alt.Color, alt.Shape]:
    """Colour and shape of each series, with the legend in a corner: bottom left is what falling curves leave empty."""
    colours = series_colours(theme, len(labels), ordered=ordered)
    shapes = [SHAPES[i % len(SHAPES)] for i in range(len(labels))]
    # The word list of corners is Altair's; a wrong one fails its validation in the tests.
    box = alt.Legend(title=None, orient=corner, offset=6, padding=3) if legend else None  # type: ignore[arg-type]
    colour = alt.Color("series:N", sort=None, scale=alt.Scale(domain=labels, range=colours), legend=box)
    return colour, alt.Shape("series:N", sort=None, scale=alt.Scale(domain=labels, range=shapes), legend=box)


def perfect_lines(points: pl.DataFrame, theme: Theme, x: alt.X, y_span: LogRange) -> alt.Chart:
    """The line of perfect scaling of every series, dashed, cut where it leaves the panel."""
    floor = y_span.base**y_span.low
    ends = (
        points.group_by("series", maintain_order=True)
        .agg(
            pl.col("batch_size").min().cast(pl.Float64).alias("from"),
            pl.col("batch_size").max().cast(pl.Float64).alias("to"),
            (pl.col("perfect") * pl.col("batch_size")).first().alias("examples"),
        )
        .with_columns(pl.min_horizontal("to", pl.col("examples") / floor).alias("to"))
    )
    rows = pl.concat(
        [
            ends.select("series", pl.col(end).alias("batch_size"), (pl.col("examples") / pl.col(end)).alias("value"))
            for end in ("from", "to")
        ]
    )
    lines: alt.Chart = (
        alt.Chart(inline(rows))
        .mark_line(strokeDash=[5, 4], strokeWidth=1.1, color=theme.muted, clip=True, aria=False)
        .encode(x=x, y=alt.Y("value:Q", scale=log_scale(y_span)), detail="series:N")
    )
    return lines


def curve_tooltips(normalised: bool) -> list[alt.Tooltip]:
    """What a point of a curve says when pointed at."""
    shown = [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("steps:Q", title="steps to result", format=",.0f"),
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("reached:Q", title="trials that reached the goal"),
        alt.Tooltip("trials:Q", title="trials"),
    ]
    if normalised:
        shown.insert(3, alt.Tooltip("value:Q", title="normalised", format=".4g"))
    return shown
