"""Critical and optimal batch sizes of the atlas against the data used and the size of the model, with intervals."""

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from batchscale.analysis.curve_analysis import Analysis
from batchscale.atlas.table import Atlas
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.frames import empty_reason, note_frame, workload_values
from batchscale.figures.kinds.atlas import OTHERS, YOURS, group_colours, group_of
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline, legend_below
from batchscale.figures.names import workload_label
from batchscale.formatting import count_text

PANELS: Mapping[str, tuple[str, str]] = {
    "used": ("Batch size against the data used", "examples (sequences, images) to result, the fewest"),
    "parameters": ("Batch size against the size of the model", "parameters"),
}
CRITICAL, OPTIMAL = "B_crit", "B_opt"
SIZES_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # a group of kinds of models, or the user's own
    "boundary": pl.String,  # B_crit or B_opt
    "curve": pl.String,
    "label": pl.String,
    "source": pl.String,
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "batch_unit": pl.String,
    "x": pl.Float64,  # data used, or parameters
    "value": pl.Float64,
    "value_low": pl.Float64,
    "value_high": pl.Float64,
    "note": pl.String,
}
LOOK = Look(size=PanelSize(420, 340), columns=2)


def sizes_frame(atlas: Atlas, own: Sequence[Analysis] = ()) -> pl.DataFrame:
    """Return B_crit and B_opt of every curve against data used and parameters: a frame of ``SIZES_SCHEMA``."""
    rows: list[dict[str, object]] = []
    names = ("curve", "label", "source", "dataset", "model", "optimizer", "goal", "batch_unit")
    for row in atlas.curves.iter_rows(named=True):
        values = {name: row[name] for name in names}
        values["series"] = YOURS if row["source"] == "own" else group_of(row["kind"])
        places = {name: row[name] for name in PANELS}
        ends = {name: (row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in ("b_crit", "b_opt")}
        rows += _rows(values, places, ends["b_crit"], ends["b_opt"])
    for answer in own:
        rows += _own_rows(answer)
    frame = pl.DataFrame(rows, schema=SIZES_SCHEMA)
    lacking = {name: atlas.curves.filter(pl.col("b_crit").is_not_null() & pl.col(name).is_null()) for name in PANELS}
    notes = [
        note_frame(SIZES_SCHEMA, f"not stated for {count_text(len(without), 'curve')}", panel=PANELS[name][0])
        for name, without in lacking.items()
        if len(without)
    ]
    order = [title for title, _ in PANELS.values()]
    return pl.concat([frame, *notes]).sort(pl.col("panel").replace_strict(order, [0, 1]), maintain_order=True)


def _rows(
    values: Mapping[str, object], places: Mapping[str, float | None], *ends: tuple[float | None, ...]
) -> list[dict[str, object]]:
    """Return a row per panel and boundary that have a value."""
    return [
        {**values, "panel": PANELS[name][0], "boundary": boundary, "x": x}
        | {"value": value, "value_low": low, "value_high": high}
        for name, x in places.items()
        for boundary, (value, low, high) in zip((CRITICAL, OPTIMAL), ends, strict=True)
        if x is not None and value is not None
    ]


def _own_rows(answer: Analysis) -> list[dict[str, object]]:
    summary = answer.summary
    if summary is None:
        return []
    label = workload_label(answer.workload) if answer.workload else "your curve"
    values: dict[str, object] = {"curve": label, "label": label, "source": "own", "series": YOURS}
    values |= {"goal": answer.goal and str(answer.goal)}
    values |= workload_values(answer.workload) if answer.workload else {}
    cheapest = summary.point(summary.regimes.cheapest)
    used = cheapest.batch_size * (cheapest.steps.value or 0.0)
    ends = [(size.value, size.low, size.high) for size in (summary.critical, summary.optimal.batch_size)]
    return _rows(values, {"used": used or None}, *ends)


def plot_sizes(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw two panels: points with intervals, filled for B_crit and hollow for B_opt, coloured by kind of model."""
    groups = frame.drop_nulls("value")["series"].unique(maintain_order=True).to_list()
    ordered = sorted((name for name in groups if name not in (OTHERS, YOURS)), key=str)
    labels = [*ordered, *(name for name in (OTHERS, YOURS) if name in groups)]
    return draw_panels(
        frame, lambda part, look: _panel(part, look, labels), look, of="curves", goals=False, one_legend=True
    )


def _panel(frame: pl.DataFrame, look: Look, labels: Sequence[str]) -> Drawn | str:
    points = frame.drop_nulls("value")
    if points.is_empty():
        return empty_reason(frame)
    theme = look.theme
    title = next(axis for name, axis in PANELS.values() if name == frame["panel"][0])
    x_span = log_range(points["x"], base=10, margin=0.25)
    ends = [*points["value"], *points["value_low"].drop_nulls(), *points["value_high"].drop_nulls()]
    y_span = log_range(ends, margin=0.6)
    scale = alt.Scale(domain=list(labels), range=group_colours(labels, theme))
    colour = alt.Color("series:N", sort=None, scale=scale, legend=legend_below())
    x = alt.X("x:Q", scale=log_scale(x_span), axis=log_axis(title, x_span, 7))
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis("batch size (examples)", y_span))
    critical = points.filter(pl.col("boundary") == CRITICAL)
    optimal = points.filter(pl.col("boundary") == OPTIMAL)
    low = alt.Y("value_low:Q", scale=log_scale(y_span))
    bars = alt.Chart(inline(points.drop_nulls(["value_low", "value_high"])))
    layers = [
        bars.mark_rule(strokeWidth=5, strokeOpacity=0.28, clip=True, aria=False).encode(
            x=x, y=low, y2="value_high:Q", color=colour
        ),
        alt.Chart(inline(critical)).mark_point(filled=True, size=62, opacity=1).encode(
            x=x, y=y, color=colour, tooltip=_tooltips()
        ),
        alt.Chart(inline(optimal)).mark_point(
            shape="diamond", filled=False, fill=theme.ground, size=56, strokeWidth=1.9, opacity=1
        ).encode(x=x, y=y, color=colour, tooltip=_tooltips()),
    ]  # fmt: skip
    mine = critical.filter(pl.col("series") == YOURS)
    if len(mine):
        ring = alt.Chart(inline(mine)).mark_point(
            size=150, strokeWidth=2.2, stroke=theme.text, fill=theme.star, opacity=1
        )
        layers.append(ring.encode(x=x, y=y, tooltip=_tooltips()))
    legend = "circles: B_crit; diamonds: B_opt; bars: 90 % intervals"
    return Drawn(layers, [legend, *frame["note"].drop_nulls().unique(maintain_order=True)])


def _tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("label:N", title="curve"),
        alt.Tooltip("goal:N", title="goal"),
        alt.Tooltip("source:N", title="source"),
        alt.Tooltip("boundary:N", title="boundary"),
        alt.Tooltip("value:Q", title="batch size", format=",.0f"),
        alt.Tooltip("value_low:Q", title="from", format=",.0f"),
        alt.Tooltip("value_high:Q", title="to", format=",.0f"),
        alt.Tooltip("batch_unit:N", title="counted in"),
        alt.Tooltip("x:Q", title="data or parameters", format=",.3s"),
    ]
