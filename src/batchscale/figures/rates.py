"""The best learning rates of several curves in one panel, beside linear scaling."""

import altair as alt
import polars as pl

from batchscale.figures.axes import LogRange, log_axis, log_range, log_scale, size_axis
from batchscale.figures.kinds.curves import BATCH_SIZE, hollow_points, legend_under, series_scales, with_rings
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline
from batchscale.figures.names import metaparameter_label
from batchscale.figures.notes import empty_reason, panel_notes
from batchscale.figures.theme import Theme

LOOK = Look(columns=2, size=PanelSize(460, 320))
DASHED = "dashed: linear scaling of the rate at each curve's smallest batch size"


def plot_rates(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw panels with one line per series: the best value of a metaparameter at each batch size.

    Args:
        frame: Rows of ``metaparameter_frame``, with the column ``series``.
        look: The layout.
    """
    return draw_panels(frame, _panel, look, of="learning rates")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite() & (pl.col("value") > 0))
    if points.is_empty():
        return empty_reason(frame)
    theme, width = look.theme, look.size.width
    labels = points["series"].unique(maintain_order=True).to_list()
    x_span, y_span = log_range(points["batch_size"]), log_range(points["value"], 10, 0.15, 1)
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=size_axis(BATCH_SIZE, x_span, points["batch_size"], width))
    label = metaparameter_label(frame["metaparameter"][0])
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(label, y_span))
    colour, shape = series_scales(labels, theme, False, legend_under(labels, width) if len(labels) > 1 else None)
    layers = [
        *_linear(points, theme, x, y_span),
        alt.Chart(inline(points)).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, detail="series:N"),
        alt.Chart(inline(with_rings(points)))
        .mark_point(filled=True, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape, size=alt.Size("size:Q", scale=None), tooltip=_tooltips(label)),
        *(mark.encode(color=colour, shape=shape) for mark in hollow_points(points, theme, x, y)),
    ]
    has_guide = points["linear"].is_not_null().any()
    return Drawn(layers, [*panel_notes(frame), *([DASHED] if has_guide else [])])


def _linear(points: pl.DataFrame, theme: Theme, x: alt.X, y_span: LogRange) -> list[alt.Chart]:
    """Return the lines of linear scaling, up to the top of the panel: beyond it a line would be drawn outside."""
    top = y_span.base**y_span.high
    rows = points.drop_nulls("linear").group_by("series", maintain_order=True).agg(
        pl.col("batch_size").min().cast(pl.Float64).alias("from"),
        pl.col("batch_size").max().cast(pl.Float64).alias("to"),
        (pl.col("linear") / pl.col("batch_size")).first().alias("slope"),
    ).with_columns(pl.min_horizontal("to", top / pl.col("slope")).alias("to"))  # fmt: skip
    if rows.is_empty():
        return []
    ends = pl.concat(
        rows.select("series", pl.col(end).alias("batch_size"), (pl.col("slope") * pl.col(end)).alias("value"))
        for end in ("from", "to")
    )
    lines: alt.Chart = (
        alt.Chart(inline(ends))
        .mark_line(strokeDash=[5, 4], strokeWidth=1.1, color=theme.muted, clip=True, aria=False)
        .encode(x=x, y=alt.Y("value:Q", scale=log_scale(y_span)), detail="series:N")
    )
    return [lines]


def _tooltips(label: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title=label, format=".4g"),
        alt.Tooltip("steps:Q", title="steps to result", format=",.0f"),
        alt.Tooltip("trial_id:Q", title="trial"),
    ]
