"""Several curves of steps to result in a panel: plain, normalised, or a family over goals."""

import itertools
from collections.abc import Sequence

import altair as alt
import polars as pl

from batchscale.figures.axes import LogRange, log_axis, log_range, log_scale, size_axis
from batchscale.figures.frames import at_edge, empty_reason, panel_notes, panel_unit
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline
from batchscale.figures.names import BASELINES
from batchscale.figures.series import joint_panel, series_frame
from batchscale.figures.theme import Theme, series_colours

SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
STEPS = "steps to result"
LOOK = Look(columns=3)


def plot_curves(frame: pl.DataFrame, look: Look = LOOK, *, ordered: bool = False) -> Chart:
    """Draw panels of curves on log2 axes, with the perfect scaling of each as a dashed line.

    Args:
        frame: Points of ``SERIES_SCHEMA``.
        look: The layout.
        ordered: True if the series have an order (goals), and so colours along a ramp.
    """
    return draw_panels(frame, lambda part, look: _panel(part, look, ordered), look, of="workloads", goals=not ordered)


def _panel(frame: pl.DataFrame, look: Look, ordered: bool) -> Drawn | str:
    points = frame.drop_nulls("value")
    if points.is_empty():
        return empty_reason(frame)
    theme, width = look.theme, look.size.width
    labels = points["series"].unique(maintain_order=True).to_list()
    normalised = bool((points["value"] != points["steps"]).any())
    x_span, y_span = log_range(points["batch_size"]), log_range(points["value"], margin=0.6)
    x = alt.X(
        "batch_size:Q",
        scale=log_scale(x_span),
        axis=size_axis(x_span, points["batch_size"], width, unit=panel_unit(points)),
    )
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(_steps_title(points), y_span))
    legend = legend_under(labels, width) if len(labels) > 1 else None
    colour, shape = series_scales(labels, theme, ordered, legend)
    same = same_curves(points)
    later = [label for group in same for label in group[1:]]
    lines = {dash: points.filter(pl.col("series").is_in(later) == dash) for dash in (False, True)}
    layers = [
        perfect_lines(points, theme, x, y_span),
        *(
            alt.Chart(inline(rows))
            .mark_line(strokeWidth=1.8, strokeDash=[7, 7] if dash else [1, 0])
            .encode(x=x, y=y, color=colour, detail="series:N")
            for dash, rows in lines.items()
            if len(rows)
        ),
        alt.Chart(inline(with_rings(points)))
        .mark_point(filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            color=colour,
            shape=shape,
            size=alt.Size("size:Q", scale=None),
            tooltip=curve_tooltips(normalised),
        ),
        *(mark.encode(color=colour, shape=shape) for mark in hollow_points(points, theme, x, y)),
    ]
    coincide = [f"{' and '.join(group)} coincide" for group in same]
    alone = [f"goal: {labels[0]}"] if ordered and len(labels) == 1 else []  # which no legend names
    return Drawn(layers, [*alone, *panel_notes(frame), *coincide, BASELINES[points["baseline"][0]]])


def _steps_title(points: pl.DataFrame) -> str:
    """Return the title of the axis of steps; normalised ones name the batch size at which each curve is 1."""
    if not (points["value"] != points["steps"]).any():
        return STEPS
    ones = points.filter(pl.col("value") == 1)
    sizes = ones["batch_size"].mode().sort()
    return f"steps to result ÷ those at batch size {sizes[0]:,}" if len(sizes) else f"{STEPS}, normalised"


def same_curves(points: pl.DataFrame) -> list[list[str]]:
    """Return groups of series that have the same points, so that one would hide the other."""
    curves: dict[tuple[tuple[object, ...], ...], list[str]] = {}
    for (label,), rows in points.group_by("series", maintain_order=True):
        key = tuple(rows.sort("batch_size").select("batch_size", "value").iter_rows())
        curves.setdefault(key, []).append(str(label))
    return [group for group in curves.values() if len(group) > 1]


def with_rings(points: pl.DataFrame) -> pl.DataFrame:
    """Return the points with the column ``size``, larger ones first: of points at one place every one stays visible."""
    above = pl.len().over("batch_size", "value") - 1 - pl.int_range(pl.len()).over("batch_size", "value")
    return points.with_columns((34 + 70 * above).alias("size")).sort("size", descending=True, maintain_order=True)


def hollow_points(points: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return hollow marks over the points whose best trial lies at an edge of its search space."""
    flagged = at_edge(points)
    if flagged.is_empty():
        return []
    tooltips = [
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title="value", format=",.6~g"),
        alt.Tooltip("edge:N", title="best trial at an edge"),
    ]
    marks: alt.Chart = (
        alt.Chart(inline(flagged))
        .mark_point(size=44, filled=False, fill=theme.ground, opacity=1, strokeWidth=1.8)
        .encode(x=x, y=y, tooltip=tooltips)
    )
    return [marks]


def legend_under(labels: Sequence[str], width: int, title: str | None = None) -> alt.Legend:
    """Return a legend below its panel, where no line can cross it, in as many columns as fit."""
    columns = max(1, int(width // (6.2 * max(len(label) for label in labels) + 26)))
    return alt.Legend(
        title=title, orient="bottom", direction="horizontal", columns=columns, offset=6, titleAnchor="start"
    )


def series_scales(
    labels: Sequence[str], theme: Theme, ordered: bool, legend: alt.Legend | None
) -> tuple[alt.Color, alt.Shape]:
    """Return colour and shape of each series."""
    colours = series_colours(theme, len(labels), ordered=ordered)
    shapes = list(itertools.islice(itertools.cycle(SHAPES), len(labels)))
    colour = alt.Color("series:N", sort=None, scale=alt.Scale(domain=labels, range=colours), legend=legend)
    return colour, alt.Shape("series:N", sort=None, scale=alt.Scale(domain=labels, range=shapes), legend=legend)


def perfect_lines(points: pl.DataFrame, theme: Theme, x: alt.X, y_span: LogRange) -> alt.Chart:
    """Return the line of perfect scaling of every series, dashed, cut where it leaves the panel."""
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
    """Return the tooltips of a point of a curve."""
    tooltips = [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("steps:Q", title="steps to result", format=",.0f"),
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("reached:Q", title="trials that reached the goal"),
        alt.Tooltip("trials:Q", title="trials"),
    ]
    if normalised:
        tooltips.insert(3, alt.Tooltip("value:Q", title="normalised", format=".4g"))
    return tooltips


def _data(request: FigureRequest) -> pl.DataFrame:
    panel = joint_panel(
        request.records, request.goal, normalise_at=request.normalise_at, first_trials=request.first_trials
    )
    return series_frame(request.records, [panel])


KIND = FigureKind(
    "the curves of several workloads in one panel, plain or normalised",
    _data,
    plot_curves,
    Look(size=PanelSize(460, 340)),
)
