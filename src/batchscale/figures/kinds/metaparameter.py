"""The best metaparameters against batch size, beside the linear and square-root heuristics (Figures 8, 21, 22)."""

from collections.abc import Iterable, Mapping

import altair as alt
import polars as pl

from batchscale.analysis.metaparameters import EFFECTIVE, Heuristic, add_effective_learning_rate
from batchscale.analysis.results import steps_to_result
from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.figures.axes import LogRange, log_axis, log_range, log_scale, size_axis
from batchscale.figures.frames import (
    NOT_REACHED,
    WORKLOAD_SCHEMA,
    MissingDataError,
    empty_reason,
    find_studies,
    join_frames,
    literals,
    panel_notes,
    panel_unit,
    rows_or_note,
    with_edges,
    with_fixed,
    workload_values,
)
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.kinds.curves import hollow_points, legend_under, series_scales, with_rings
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline
from batchscale.figures.names import metaparameter_label
from batchscale.figures.series import CurvePanel, Series, workload_panels
from batchscale.figures.theme import Theme
from batchscale.records.frames import Records

LOOK = Look(columns=3)
RATES_LOOK = Look(columns=2, size=PanelSize(460, 320))
DASHED_RATES = "dashed: linear scaling of the rate at each curve's smallest batch size"
SCALED = (EFFECTIVE, "learning_rate")  # the metaparameters that the heuristics are for

METAPARAMETER_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    **WORKLOAD_SCHEMA,
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
    """Return the winning trial's value of a metaparameter per batch size: a frame of ``METAPARAMETER_SCHEMA``.

    Args:
        records: The records of the workloads.
        panels: Each with one series.
        metaparameter: A column of trials, or ``effective_learning_rate``.
        fixed_momentum: Momentum of workloads whose trials do not record it, as it was not tuned.
    """
    frames = [
        with_edges(
            _rows(records, panel.title, series, metaparameter, fixed_momentum or {}),
            records,
            series.goal,
            series.first_trials,
        )
        for panel in panels
        for series in panel.series
    ]
    return join_frames(frames, METAPARAMETER_SCHEMA)


def check_metaparameter(records: Records, name: str) -> None:
    """Raise UnknownNameError if no trial of the records has this metaparameter."""
    names = {*records.metaparameters, EFFECTIVE}
    if name not in names and not records.studies.is_empty():
        raise UnknownNameError(f"--metaparameter: no trial here has '{one_line(name)}'; {suggest_names(name, names)}")


def _with_effective_rate(trials: pl.DataFrame, fixed_momentum: float | None) -> pl.DataFrame:
    """Return trials with the column ``effective_learning_rate``; ``fixed_momentum`` if none is recorded."""
    if fixed_momentum is not None:
        momentum = pl.col("momentum") if "momentum" in trials.columns else pl.lit(None, dtype=pl.Float64)
        trials = trials.with_columns(momentum.fill_null(fixed_momentum).alias("momentum"))
    return add_effective_learning_rate(trials)


def plot_metaparameter(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per workload: the best value at each batch size, and the values of the heuristics."""
    return draw_panels(frame, _panel, look, of="workloads")


def _rows(
    records: Records, title: str, series: Series, metaparameter: str, fixed_momentum: Mapping[str, float]
) -> pl.DataFrame:
    name = series.workload
    panel_values = {"panel": title, "goal": str(series.goal), "metaparameter": metaparameter, **workload_values(name)}

    def make() -> pl.DataFrame:
        selected = find_studies(records, name, first_trials=series.first_trials)
        results = steps_to_result(selected, series.goal, budget=series.budget)
        results = _with_effective_rate(with_fixed(results, selected), fixed_momentum.get(str(name)))
        if metaparameter not in results.columns or results[metaparameter].is_null().all():
            reached = results["steps"].drop_nulls().len()
            label = metaparameter_label(metaparameter)
            raise MissingDataError(f"no {label} is recorded" if reached else f"no trial reached {series.goal}")
        return _with_heuristics(results, metaparameter).with_columns(literals(panel_values))

    return rows_or_note(METAPARAMETER_SCHEMA, panel_values, make)


def _with_heuristics(results: pl.DataFrame, metaparameter: str) -> pl.DataFrame:
    first = results.drop_nulls(metaparameter).sort("batch_size").row(0, named=True)
    ratio = pl.col("batch_size") / first["batch_size"]
    start = pl.lit(first[metaparameter] if metaparameter in SCALED else None, dtype=pl.Float64)
    return results.with_columns(
        pl.col(metaparameter).alias("value"),
        (start * ratio**Heuristic.LINEAR.power).alias("linear"),
        (start * ratio**Heuristic.SQUARE_ROOT.power).alias("square_root"),
        pl.when(pl.col("steps").is_null()).then(pl.lit(NOT_REACHED)).alias("note"),
    )


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    metaparameter, theme = frame["metaparameter"][0], look.theme
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    if points.is_empty():
        return empty_reason(frame)
    points = points.with_columns(pl.col("value").alias("drawn"))
    x_span = log_range(points["batch_size"])
    axis = size_axis(x_span, points["batch_size"], look.size.width, unit=panel_unit(points))
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=axis)
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
    return Drawn(layers, panel_notes(frame))


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
    legend = alt.Legend(title=None, orient="bottom", direction="horizontal", offset=6)
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


def _data(request: FigureRequest) -> pl.DataFrame:
    name = request.metaparameter or EFFECTIVE
    check_metaparameter(request.records, name)
    panels = workload_panels(request.records, [request.goal], first_trials=request.first_trials)
    return metaparameter_frame(request.records, panels, name)


def plot_rates(frame: pl.DataFrame, look: Look = RATES_LOOK) -> Chart:
    """Draw panels with one line per series: the best value of a metaparameter at each batch size.

    Args:
        frame: Rows of ``metaparameter_frame``, with the column ``series``.
        look: The layout.
    """
    return draw_panels(frame, _rates_panel, look, of="learning rates")


def _rates_panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite() & (pl.col("value") > 0))
    if points.is_empty():
        return empty_reason(frame)
    theme, width = look.theme, look.size.width
    labels = points["series"].unique(maintain_order=True).to_list()
    x_span, y_span = log_range(points["batch_size"]), log_range(points["value"], 10, 0.15, 1)
    x = alt.X(
        "batch_size:Q",
        scale=log_scale(x_span),
        axis=size_axis(x_span, points["batch_size"], width, unit=panel_unit(points)),
    )
    label = metaparameter_label(frame["metaparameter"][0])
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(label, y_span))
    colour, shape = series_scales(labels, theme, False, legend_under(labels, width) if len(labels) > 1 else None)
    layers = [
        *_linear_lines(points, theme, x, y_span),
        alt.Chart(inline(points)).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour, detail="series:N"),
        alt.Chart(inline(with_rings(points)))
        .mark_point(filled=True, opacity=1)
        .encode(
            x=x, y=y, color=colour, shape=shape, size=alt.Size("size:Q", scale=None), tooltip=_rate_tooltips(label)
        ),
        *(mark.encode(color=colour, shape=shape) for mark in hollow_points(points, theme, x, y)),
    ]
    has_guide = points["linear"].is_not_null().any()
    return Drawn(layers, [*panel_notes(frame), *([DASHED_RATES] if has_guide else [])])


def _linear_lines(points: pl.DataFrame, theme: Theme, x: alt.X, y_span: LogRange) -> list[alt.Chart]:
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


def _rate_tooltips(label: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title=label, format=".4g"),
        alt.Tooltip("steps:Q", title="steps to result", format=",.0f"),
        alt.Tooltip("trial_id:Q", title="trial"),
    ]


KIND = FigureKind(
    "the best value of --metaparameter against batch size, beside the scaling heuristics",
    _data,
    plot_metaparameter,
    LOOK,
)
