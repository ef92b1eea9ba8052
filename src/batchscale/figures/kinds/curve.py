"""The curve of one workload: its regimes, its critical batch size, its intervals, and points to be trusted less."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from batchscale.analysis.answer import critical_digits
from batchscale.analysis.curve_analysis import ANALYSIS_SCHEMA, Analysis, AnalysisOptions, analyze
from batchscale.analysis.regimes import Baseline, Regime, RegimeSpan
from batchscale.analysis.summary import CurveSummary
from batchscale.analysis.units import SizeUnit
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import LogRange, log_range, log_scale, number_axis, size_axis
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
from batchscale.figures.kinds.curves import STEPS, perfect_lines
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline
from batchscale.figures.names import BASELINES, none_reached, workload_label
from batchscale.figures.size_marks import (
    LABEL_SIZE,
    LETTER,
    LINE_HEIGHT,
    SizeMark,
    alone_or_small,
    draw_marks,
    interval_bars,
    with_room,
)
from batchscale.figures.theme import Theme
from batchscale.formatting import rounded_text, span_text
from batchscale.records.frames import Records
from batchscale.records.metadata.study import study_note
from batchscale.spec.goal import Goal

LOOK = Look(columns=2)
MOST_LARGE = 40  # points; more get smaller marks
SHADE_OPACITY = 0.75  # the grid shows through
CURVE_DETAIL_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "goal": pl.String,
    "batch_size": pl.Int64,
    "steps": pl.Float64,
    "steps_low": pl.Float64,
    "steps_high": pl.Float64,
    "value": pl.Float64,
    "perfect": pl.Float64,
    "baseline": pl.String,
    "trial_id": pl.Int64,
    "trials": pl.Int64,
    "reached": pl.Int64,
    "infeasible": pl.Int64,
    "flags": pl.String,
    EDGE: pl.String,
    "regime": pl.String,  # of the point; null for sizes smaller than where perfect scaling starts
    "perfect_scaling_end": pl.Int64,  # the boundaries are in every row
    "max_useful_batch_size": pl.Int64,
    "max_useful_reached": pl.Boolean,
    "b_crit": pl.Float64,
    "b_crit_low": pl.Float64,
    "b_crit_high": pl.Float64,
    "b_opt": pl.Float64,
    "note": pl.String,
}


def curve_frame(records: Records, goal: Goal, *, baseline: Baseline = Baseline.ROBUST) -> pl.DataFrame:
    """Return the curve of every workload, a panel each: a frame of ``CURVE_DETAIL_SCHEMA``."""
    frames = []
    for name in records.workloads:
        try:
            frames.append(analysis_frame(analyze(records, name, goal, AnalysisOptions(baseline))))
        except BatchscaleError as error:
            panel_values = {"panel": workload_label(name), "goal": str(goal), **workload_values(name)}
            frames.append(note_frame(CURVE_DETAIL_SCHEMA, str(error), **panel_values))
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema=CURVE_DETAIL_SCHEMA)


def analysis_frame(answer: Analysis) -> pl.DataFrame:
    """Return the frame of an analysed workload."""
    regimes = None if answer.summary is None else answer.summary.regimes
    title = workload_label(answer.workload) if answer.workload else "curve"
    goal = None if answer.goal is None else str(answer.goal)
    absent = {name: kind for name, kind in ANALYSIS_SCHEMA.items() if name not in answer.curve.columns}  # bare points
    curve = answer.curve.sort("batch_size").with_columns(
        pl.lit(None, dtype=kind).alias(name) for name, kind in absent.items()
    )
    first = curve.filter(pl.col("steps") > 0).head(1)
    lone = float(first["steps"][0]) * int(first["batch_size"][0]) if len(first) else None
    examples = regimes.baseline_examples if regimes else lone
    reached = curve["steps"].is_not_null() & (curve["steps"] > 0)
    names = [
        regimes.regime_of(size) if regimes and has_steps else None
        for size, has_steps in zip(curve["batch_size"], reached, strict=True)
    ]
    rows = curve.with_columns(
        pl.lit(title).alias("panel"),
        pl.lit(title).alias("series"),
        pl.when(pl.col("steps") > 0).then(pl.col("steps")).cast(pl.Float64).alias("value"),
        (pl.lit(examples, dtype=pl.Float64) / pl.col("batch_size")).alias("perfect"),
        pl.lit((regimes.baseline if regimes else Baseline.FIRST).value).alias("baseline"),
        pl.when("at_edge").then("edge").alias(EDGE),
        pl.Series("flags", [point_flags(row) for row in curve.to_dicts()], dtype=pl.String),
        pl.Series("regime", names, dtype=pl.String),
        pl.lit(regimes.perfect_end if regimes else None, dtype=pl.Int64).alias("perfect_scaling_end"),
        pl.lit(regimes.max_useful_batch_size if regimes else None, dtype=pl.Int64).alias("max_useful_batch_size"),
        pl.lit(regimes.max_useful_reached if regimes else None, dtype=pl.Boolean).alias("max_useful_reached"),
        *(pl.lit(value, dtype=pl.Float64).alias(name) for name, value in _marked_sizes(answer.summary).items()),
        pl.lit(None, dtype=pl.String).alias("note"),
    ).select(pl.col(name).cast(kind) for name, kind in CURVE_DETAIL_SCHEMA.items())
    values: dict[str, object] = {"panel": title, "series": title, "goal": goal}
    values |= workload_values(answer.workload) if answer.workload else {}
    notes = (note_frame(CURVE_DETAIL_SCHEMA, note, **values) for note in missing_sentences(answer))
    return with_unit(pl.concat([rows, *notes]), answer.unit)


def _marked_sizes(summary: CurveSummary | None) -> dict[str, float | None]:
    if summary is None:
        return dict.fromkeys(("b_crit", "b_crit_low", "b_crit_high", "b_opt"))
    critical, optimal = summary.critical, summary.optimal.batch_size.value
    return {
        "b_crit": critical.value,
        "b_crit_low": critical.low,
        "b_crit_high": critical.high,
        "b_opt": None if summary.misfit else optimal,
    }


def point_flags(row: Mapping[str, Any]) -> str | None:
    """Return the reasons to trust a point less; None if there are none."""
    if row["steps"] is None:
        return None
    flags = (
        study_note(row["edge"] if row["at_edge"] else None, row["searches"] or 1),
        row["still_moves"] and row["stability"],
    )
    return "; ".join(flag for flag in flags if flag) or None


def missing_sentences(answer: Analysis) -> list[str]:
    """Return sentences on results that the records lack."""
    curve = answer.curve
    unreached = curve.filter(pl.col("steps").is_null()).sort("batch_size")["batch_size"]
    if len(unreached) == len(curve):
        words = none_reached(int(curve["trials"].sum() or 0), "COMPLETE trial")
        return [f"{words[0].upper()}{words[1:]} {answer.goal}."]
    sizes = ", ".join(f"{size:,}" for size in unreached)
    missing = [f"No trial reached the goal at batch size {sizes}."] if len(unreached) else []
    if answer.refusal:
        missing.append(answer.refusal)
    elif answer.summary is not None and answer.summary.fit_refusal:
        missing.append(answer.summary.fit_refusal)
    return missing


def plot_curve(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per workload: regimes shaded, perfect scaling dashed, intervals as bars, doubtful points hollow."""
    return draw_panels(frame, _panel, alone_or_small(look, LOOK, frame), of="workloads")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("value")
    if points.is_empty():
        return empty_reason(frame)
    theme, size = look.theme, look.size
    x_span = log_range(points["batch_size"], margin=0.5)
    labels = {span: _fit_label(span.regime.value, span.start, span.end, x_span, size) for span in shaded_spans(points)}
    marks = _marks(points, theme)
    ends = pl.concat([points["value"], points["steps_low"].drop_nulls(), points["steps_high"].drop_nulls()])
    above = 10 + LINE_HEIGHT * max(map(len, labels.values()), default=0)
    y_span = with_room(log_range(ends, margin=0.3), size.height, above=above, below=8 + LINE_HEIGHT * len(marks))
    x = alt.X(
        "batch_size:Q",
        scale=log_scale(x_span),
        axis=size_axis(x_span, points["batch_size"], size.width, unit=panel_unit(points), grid=False),
    )
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=number_axis(STEPS, y_span))
    line = alt.Chart(inline(points)).mark_line(strokeWidth=2.5, color=theme.series[0], strokeJoin="round")
    layers = [
        *_regime_shades(labels, theme, x_span),
        perfect_lines(points, theme, x, y_span),
        *draw_marks(marks, x_span, size, top=above),
        *interval_bars(points, ("steps_low", "steps_high"), theme, x, y_span),
        line.encode(x=x, y=y),
        *_dots(points, theme, x, y),
    ]
    return Drawn(layers, _notes(frame, points))


def _marks(points: pl.DataFrame, theme: Theme) -> list[SizeMark]:
    """Return the critical batch size with its interval, and the size of fewest examples, as far as there are any."""
    row, unit = points.row(0, named=True), panel_unit(points)
    value, low, high = row["b_crit"], row["b_crit_low"], row["b_crit_high"]
    marks = []
    if value is not None or low is not None or high is not None:
        digits = critical_digits(low, high)
        text = (
            span_text(low, high, lambda end: unit.brief(end, lambda size: rounded_text(size, digits)))
            if value is None
            else unit.brief(value, lambda size: rounded_text(size, digits))
        )
        marks.append(SizeMark(f"critical batch size {text}", theme.series[0], value, low, high))
    if row["b_opt"] is not None:
        size = unit.brief(row["b_opt"], lambda value: rounded_text(value, digits=2))
        label = f"fewest {unit.noun} at {size}"
        marks.append(SizeMark(label, theme.muted, row["b_opt"], is_dashed=True, row=len(marks)))
    return marks


def _notes(frame: pl.DataFrame, points: pl.DataFrame) -> list[str]:
    notes = [BASELINES[points["baseline"][0]]]
    if points["flags"].drop_nulls().len():
        notes.append("hollow points are to be trusted less")
    return [*notes, *panel_notes(frame)]


def shaded_spans(points: pl.DataFrame) -> list[RegimeSpan]:
    """Return the regimes to shade: each point's regime spans from the point before it."""
    spans: list[RegimeSpan] = []
    rows = points.sort("batch_size").select("batch_size", "regime").rows()
    for (start, before), (end, name) in itertools.pairwise(rows):
        if before is None or name is None:
            continue
        if spans and spans[-1].regime == name:
            start = spans.pop().start
        spans.append(RegimeSpan(Regime(name), start, end))
    return spans


def _regime_shades(labels: Mapping[RegimeSpan, list[str]], theme: Theme, x_span: LogRange) -> list[alt.Chart]:
    """Return the grounds of the regimes, with their names in a row at the top."""
    colours = {Regime.PERFECT: theme.shade[0], Regime.MAXIMAL: theme.shade[1]}
    layers: list[alt.Chart] = []
    for (regime, start, end), lines in labels.items():
        data = alt.Chart(alt.InlineData(values=[{"from": start, "to": end, "middle": (start * end) ** 0.5}]))
        if regime in colours:  # a ground of the page's own colour would only hide the grid
            ground = data.mark_rect(color=colours[regime], opacity=SHADE_OPACITY, aria=False)
            layers.append(ground.encode(x=alt.X("from:Q", scale=log_scale(x_span)), x2="to:Q"))
        if lines:
            text = data.mark_text(
                text=lines, baseline="top", dy=7, fontSize=LABEL_SIZE, lineHeight=LINE_HEIGHT, color=theme.muted,
                aria=False,
            )  # fmt: skip
            layers.append(text.encode(x=alt.X("middle:Q", scale=log_scale(x_span)), y=alt.value(0)))
    return layers


def _fit_label(label: str, start: float, end: float, span: LogRange, size: PanelSize) -> list[str]:
    """Break a label into as many lines as its width requires; empty if even a word does not fit."""
    width = math.log(end / start, span.base) / (span.high - span.low) * size.width
    words = label.split(" ")
    for lines in ([label], [words[0], " ".join(words[1:])], words):
        if max(len(line) for line in lines) * LETTER <= width:
            return [line for line in lines if line]
    return []


def _dots(points: pl.DataFrame, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    kinds = [
        ("every reason to trust", points.filter(pl.col("flags").is_null())),
        ("doubtful", points.drop_nulls("flags")),
    ]
    layers = []
    for kind, rows in kinds:
        if rows.is_empty():
            continue
        doubtful = kind == "doubtful"
        layers.append(
            alt.Chart(inline(rows))
            .mark_point(
                size=20 if points.height > MOST_LARGE else 70 if doubtful else 60, filled=True, opacity=1,
                strokeWidth=2,
                fill=theme.ground if doubtful else theme.series[0], stroke=theme.doubt if doubtful else theme.series[0],
            )
            .encode(x=x, y=y, tooltip=_tooltips(panel_unit(rows), doubtful, not rows["steps_low"].is_null().all()))
        )  # fmt: skip
    return layers


def _tooltips(unit: SizeUnit, doubtful: bool, intervals: bool) -> list[alt.Tooltip]:
    tooltips = [
        alt.Tooltip("batch_size:Q", title=unit.size_columns[-1], format=","),
        alt.Tooltip("steps:Q", title=STEPS, format=",.0f"),
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("reached:Q", title="trials that reached the goal"),
        alt.Tooltip("trials:Q", title="trials"),
    ]
    if intervals:
        tooltips[2:2] = [
            alt.Tooltip("steps_low:Q", title="interval from", format=",.0f"),
            alt.Tooltip("steps_high:Q", title="to", format=",.0f"),
        ]
    return [*tooltips, alt.Tooltip("flags:N", title="trust less")] if doubtful else tooltips


KIND = FigureKind(
    "steps to result against batch size, with regimes, intervals and doubtful points",
    lambda request: curve_frame(request.counted, request.goal),
    plot_curve,
    LOOK,
)
