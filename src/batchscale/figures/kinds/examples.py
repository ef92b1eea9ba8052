"""The price of a batch size: examples (tokens) to result against batch size, over the fewest of the curve."""

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from batchscale.analysis.curve_analysis import Analysis, analyze
from batchscale.analysis.units import SizeUnit
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import LogRange, log_range, log_scale, size_axis
from batchscale.figures.frames import (
    EDGE,
    empty_reason,
    note_frame,
    panel_notes,
    panel_unit,
    with_unit,
    workload_values,
)
from batchscale.figures.kind import FigureKind
from batchscale.figures.layout import Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import workload_label
from batchscale.figures.size_marks import LINE_HEIGHT, SizeMark, alone_or_small, draw_marks, interval_bars, with_room
from batchscale.figures.theme import Theme
from batchscale.formatting import percent_text, rounded_text
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal

LOOK = Look(columns=2)
EXAMPLES = "{} to result over the fewest"
TICKS = (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000)
BAND_OPACITY = 0.75
EXAMPLES_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "batch_size": pl.Int64,
    "steps": pl.Float64,
    "examples": pl.Float64,  # to result
    "value": pl.Float64,  # over the fewest measured
    "value_low": pl.Float64,  # its interval
    "value_high": pl.Float64,
    "b_opt": pl.Float64,  # the boundaries are in every row
    "b_opt_low": pl.Float64,
    "b_opt_high": pl.Float64,
    "band_low": pl.Float64,  # between these sizes it costs little more than at the best
    "band_high": pl.Float64,
    "band": pl.Float64,  # how much more, as a share
    "band_from": pl.String,  # the fitted curve, or the points
    EDGE: pl.String,  # the ends of ranges that the best trial lies at
    "note": pl.String,
}


def examples_frame(records: Records, goal: Goal) -> pl.DataFrame:
    """Return the examples of every workload, a panel each: a frame of ``EXAMPLES_SCHEMA``."""
    frames = []
    for name in records.workloads:
        try:
            frames.append(analysis_examples(analyze(records, name, goal)))
        except BatchscaleError as error:
            values = {"panel": workload_label(name), "goal": str(goal), **workload_values(name)}
            frames.append(note_frame(EXAMPLES_SCHEMA, str(error), **values))
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema=EXAMPLES_SCHEMA)


def analysis_examples(answer: Analysis) -> pl.DataFrame:
    """Return the frame of an analysed workload."""
    title = workload_label(answer.workload) if answer.workload else "curve"
    values: dict[str, object] = {"panel": title, "series": title, "goal": answer.goal and str(answer.goal)}
    values |= workload_values(answer.workload) if answer.workload else {}
    summary = answer.summary
    if summary is None:
        return note_frame(EXAMPLES_SCHEMA, answer.refusal or "There are too few points.", **values)
    optimal = summary.optimal
    values |= {
        "b_opt": optimal.batch_size.value,
        "b_opt_low": optimal.batch_size.low,
        "b_opt_high": optimal.batch_size.high,
        "band_low": optimal.band[0],
        "band_high": optimal.band[1],
        "band": summary.regimes.thresholds.band,
        "band_from": "as measured" if summary.fit is None else "by the fitted curve",
    }
    at_edge = answer.curve.filter("at_edge") if "at_edge" in answer.curve.columns else answer.curve.clear()
    edges = {row["batch_size"]: row["edge"] for row in at_edge.iter_rows(named=True)}
    examples = {point.batch_size: point.batch_size * float(point.steps.value or 0) for point in summary.points}
    rows = [
        values
        | {
            "batch_size": point.batch_size,
            "steps": point.steps.value,
            "examples": examples[point.batch_size],
            "value": examples[point.batch_size] / min(examples.values()),
            "value_low": point.examples_ratio.low,
            "value_high": point.examples_ratio.high,
            EDGE: edges.get(point.batch_size),
        }
        for point in summary.points
    ]
    frame = pl.DataFrame(rows, schema=EXAMPLES_SCHEMA)
    failed = answer.unit.sizes(summary.failed) if summary.failed else ""
    notes = [f"The goal was not reached at batch size {failed}."] if failed else []
    parts = [frame, *(note_frame(EXAMPLES_SCHEMA, note, **values) for note in notes)]
    return with_unit(pl.concat(parts), answer.unit)


def plot_examples(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per workload: points and their intervals, the band of cheap sizes shaded, B_opt as a line."""
    return draw_panels(frame, _panel, alone_or_small(look, LOOK, frame), of="workloads")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("value")
    if points.is_empty():
        return empty_reason(frame)
    theme, size = look.theme, look.size
    x_span = log_range(points["batch_size"], margin=0.5)
    highest = [0.95, *points["value"], *points["value_high"].drop_nulls()]
    marks = _marks(points.row(0, named=True), theme)
    below = LINE_HEIGHT * len(marks)
    y_span = with_room(log_range(highest, margin=0.12, least=1.0), size.height, below=below)
    x = alt.X(
        "batch_size:Q",
        scale=log_scale(x_span),
        axis=size_axis(x_span, points["batch_size"], size.width, unit=panel_unit(points)),
    )
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=_times_axis(y_span, panel_unit(points)))
    base = alt.Chart(inline(points))
    layers = [
        *_cheap_sizes(points, theme, x_span),
        *draw_marks(marks, x_span, size),
        *interval_bars(points, ("value_low", "value_high"), theme, x, y_span),
        base.mark_line(strokeWidth=2.5, color=theme.series[0], strokeJoin="round").encode(x=x, y=y),
        base.mark_point(filled=True, opacity=1, size=60, color=theme.series[0]).encode(
            x=x, y=y, tooltip=_tooltips(panel_unit(points))
        ),
    ]
    return Drawn(layers, [*_optimal_notes(points), *panel_notes(frame)])


def _times_axis(span: LogRange, unit: SizeUnit) -> alt.Axis:
    ticks = [tick for tick in TICKS if span.domain[0] <= tick <= span.domain[1]]
    if len(ticks) > 8:
        ticks = [tick for tick in ticks if tick in (1, 2, 5) or tick % 10 == 0]
    return alt.Axis(title=EXAMPLES.format(unit.noun), values=ticks, format="~g", tickSize=4)


def _optimal_notes(points: pl.DataFrame) -> list[str]:
    row, unit = points.row(0, named=True), panel_unit(points)
    share, span = percent_text(row["band"]), unit.bounds(row["band_low"], row["band_high"], rounded_text)
    band = f"shaded, {span}: at most {share} more {unit.noun} {row['band_from']}"
    if row["b_opt"] is None:
        return [band]
    size = unit.estimate(row["b_opt"], row["b_opt_low"], row["b_opt_high"], rounded_text, always=True)
    return [f"line: fewest {unit.noun} at {size}", band]


def _marks(row: Mapping[str, Any], theme: Theme) -> list[SizeMark]:
    if row["b_opt"] is None:
        return []
    return [SizeMark(f"fewest examples at {rounded_text(row['b_opt'], 2)}", theme.muted, row["b_opt"], is_dashed=True)]


def _cheap_sizes(points: pl.DataFrame, theme: Theme, x_span: LogRange) -> list[alt.Chart]:
    row = points.row(0, named=True)
    if row["band_low"] >= row["band_high"]:
        return []
    band = alt.Chart(alt.InlineData(values=[{"from": row["band_low"], "to": row["band_high"]}]))
    ground = band.mark_rect(color=theme.shade[0], opacity=BAND_OPACITY, aria=False)
    return [ground.encode(x=alt.X("from:Q", scale=log_scale(x_span)), x2="to:Q")]


def _tooltips(unit: SizeUnit) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("batch_size:Q", title=unit.size_columns[-1], format=","),
        alt.Tooltip("value:Q", title=EXAMPLES.format("examples"), format=".3g"),
        alt.Tooltip("examples:Q", title="examples to result", format=",.0f"),
        alt.Tooltip("steps:Q", title="steps to result", format=",.0f"),
    ]


KIND = FigureKind(
    "examples (tokens) to result against batch size, over the fewest, with the cheapest sizes",
    lambda request: examples_frame(request.counted, request.goal),
    plot_examples,
    LOOK,
)
