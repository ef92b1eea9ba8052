"""Metaparameters beside learning curves, linked: selecting points selects their curves; and smoothed curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt
import polars as pl

from batchscale.errors import SpecError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.frames import empty_reason
from batchscale.figures.kinds.training import (
    MAX_TRIALS,
    TrainingPanel,
    cut_lines,
    goal_line,
    training_frame,
    value_limits,
)
from batchscale.figures.layout import Chart, Look, PanelSize, finish, inline, missing_panel, panel_title
from batchscale.figures.names import metaparameter_label, metric_label
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

LOOK = Look(columns=2, size=PanelSize(420, 300))
LOG_FROM = 20.0  # an axis is logarithmic where the largest value is so many times the smallest

LINKED_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "status": pl.String,
    "metric": pl.String,
    "step": pl.Int64,
    "value": pl.Float64,
    "goal": pl.Float64,
    "best": pl.Float64,  # the trial's best value of the metric
    "note": pl.String,
}
# behind these columns: one per metaparameter
MOST_SMOOTHING = 0.99


@dataclass(frozen=True)
class LinkedSelection:
    """The trials of a study, the metaparameters on the two axes, and the smoothing of lines."""

    workload: WorkloadName
    batch_size: int
    goal: Goal
    trials: Sequence[int]
    axes: tuple[str, str | None]
    smoothing: float = 0.0


def linked_frame(records: Records, question: LinkedSelection) -> pl.DataFrame:
    """Return the measurements of the trials with their metaparameters: a frame of ``LINKED_SCHEMA``."""
    trials = list(question.trials)[:: max(1, -(-len(question.trials) // MAX_TRIALS))]
    name, size, goal = question.workload, question.batch_size, question.goal
    bold = {str(trial): trial for trial in trials}
    panel = TrainingPanel(f"batch size {size:,}", name, size, goal.metric, goal, bold, background=False)
    lines = training_frame(records, [panel])
    best = pl.col("value").max() if goal.maximize else pl.col("value").min()
    lines = lines.with_columns(best.over("trial_id").alias("best"))
    study = records.workload(name).filter(batch_size=size)
    named = [name for name in study.metaparameters if name not in LINKED_SCHEMA]
    facts = study.trials.select("trial_id", "status", *named)
    return lines.join(facts, on="trial_id", how="left", maintain_order="left").select(*LINKED_SCHEMA, *named)


def plot_linked(frame: pl.DataFrame, question: LinkedSelection, look: Look = LOOK) -> Chart:
    """Draw trials by their metaparameters, and their learning curves in the same colours; a brush selects points."""
    x_name, y_name = question.axes
    points = frame.drop_nulls(["value", x_name]).filter(pl.col("value").is_finite())
    if points.is_empty():
        return finish(missing_panel([empty_reason(frame)], look), look)
    lines = smooth_curves(points, question.smoothing)
    low, high = value_limits(lines, lines.clear())
    cut = cut_lines(lines, low, high)
    brush = alt.selection_interval(name="frame", encodings=["x", "y"])
    colour, lines_colour = (_colour(points, x_name, look, has_legend=has_legend) for has_legend in (True, False))
    trials = points.unique("trial_id", keep="first", maintain_order=True)
    label = metric_label(question.goal.metric)
    y = _axis("y", trials, y_name) if y_name else _axis("y", trials, "best", f"best {label}")
    scatter = (
        alt.Chart(inline(trials))
        .mark_point(filled=True, size=55, opacity=1, stroke=look.theme.ground, strokeWidth=0.5)
        .encode(
            x=_axis("x", trials, x_name), y=y, tooltip=_tooltips(trials),
            color=alt.condition(brush, colour, alt.value(look.theme.frame)),
        )
        .add_params(brush)
        .properties(width=look.size.width, height=look.size.height, title=panel_title("Trials", _notes(frame)))
    )  # fmt: skip
    step = alt.X(
        "step:Q",
        scale=alt.Scale(domain=[0.0, _ends(points["step"])[1]], nice=False),
        axis=alt.Axis(format="~s", tickCount=5),
    )
    value = alt.Y(
        "value:Q",
        scale=alt.Scale(domain=[low, high], nice=False),
        axis=alt.Axis(title=metric_label(frame["metric"][0])),
    )
    curves = (
        alt.Chart(inline(cut))
        .mark_line(strokeWidth=1.3, strokeOpacity=0.85)
        .encode(x=step, y=value, detail="trial_id:N", color=lines_colour, tooltip=_tooltips(trials))
        .transform_filter(brush)
    )
    layers = [curves, *goal_line(points, look.theme, value, low, high)]
    right = alt.layer(*layers).properties(
        width=look.size.width, height=look.size.height, title=panel_title("Their learning curves", _smoothed(question))
    )
    both = alt.concat(scatter, right, columns=look.columns).resolve_legend(color="independent")
    return finish(both, look)


def _notes(frame: pl.DataFrame) -> list[str]:
    return [*frame["note"].drop_nulls().unique(maintain_order=True), "draw a frame around points to choose them"]


def _smoothed(question: LinkedSelection) -> list[str]:
    return [f"smoothed, weight {question.smoothing:g}"] if question.smoothing else []


def _is_log(values: pl.Series) -> bool:
    low, high = values.min(), values.max()
    return bool(low is not None and low > 0 and high / low >= LOG_FROM)  # type: ignore[operator] # floats here


def _ends(values: pl.Series) -> list[float]:
    return [float(values.min()), float(values.max())]  # type: ignore[arg-type] # not empty


def _colour(points: pl.DataFrame, name: str, look: Look, *, has_legend: bool) -> alt.Color:
    kind: Literal["log", "linear"] = "log" if _is_log(points[name]) else "linear"
    ends = _ends(points[name])  # of all trials: a frame changes no colours
    scale = alt.Scale(type=kind, domain=ends, range=list(look.theme.ramp), nice=False)
    # only one of two marks has the legend: of a fill and a stroke together the renderer makes a symbol for each value
    legend = alt.Legend(title=metaparameter_label(name), orient="bottom", gradientLength=180, tickCount=3)
    return alt.Color(f"{_field(name)}:Q", scale=scale, legend=legend if has_legend else None)


def _axis(channel: str, trials: pl.DataFrame, name: str, label: str | None = None) -> alt.X | alt.Y:
    kind = alt.X if channel == "x" else alt.Y
    title = label or metaparameter_label(name)
    if _is_log(trials[name]):
        span = log_range(trials[name], 10, 0.1, 0.5)
        return kind(f"{_field(name)}:Q", scale=log_scale(span), axis=log_axis(title, span))
    axis = alt.Axis(title=title, tickCount=5)
    return kind(f"{_field(name)}:Q", scale=alt.Scale(zero=False, padding=8), axis=axis)


def _tooltips(trials: pl.DataFrame) -> list[alt.Tooltip]:
    named = [name for name in trials.columns if name not in LINKED_SCHEMA and trials[name].null_count() < trials.height]
    return [
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("status:N"),
        alt.Tooltip("best:Q", title="best value", format=".4g"),
        *(alt.Tooltip(f"{_field(name)}:Q", title=metaparameter_label(name), format=".4g") for name in named),
    ]


def _field(name: str) -> str:
    """Return a column's name as a field: names come from records, and the renderer parses these characters."""
    return "".join(f"\\{mark}" if mark in "\\.[]:'\"" else mark for mark in name)


def smooth_curves(rows: pl.DataFrame, weight: float) -> pl.DataFrame:
    r"""Return the rows with each trial's ``value`` replaced by its exponential moving average over measurements.

    A measurement counts ``weight`` times as much as the one after it, and the weights are divided by their sum, so that
    the first values are not drawn towards 0: :math:`\sum_i w^{n-i} y_i / \sum_i w^{n-i}`. A goal is reached by
    measurements, never by this line.

    >>> rows = pl.DataFrame({"panel": ["a"] * 3, "trial_id": [1] * 3, "step": [1, 2, 3], "value": [4.0, 2.0, 2.0]})
    >>> smooth_curves(rows, 0.5)["value"].round(3).to_list()
    [4.0, 2.667, 2.286]
    """
    if not 0 <= weight <= MOST_SMOOTHING:
        raise SpecError(f"The weight of smoothing lies between 0 and {MOST_SMOOTHING}. Found {weight:g}.")
    if weight == 0 or rows.is_empty():
        return rows
    mean = pl.col("value").ewm_mean(alpha=1 - weight, adjust=True, ignore_nulls=True)
    return rows.sort("panel", "trial_id", "step", maintain_order=True).with_columns(mean.over("panel", "trial_id"))


def beside_raw(rows: pl.DataFrame, weight: float) -> pl.DataFrame:
    """Return the rows smoothed, and each named series again as measured, faint and with a negative trial id."""
    if weight == 0:
        return rows
    raw = rows.drop_nulls("series").with_columns(
        pl.lit(None, dtype=pl.String).alias("series"), (-1 - pl.col("trial_id")).alias("trial_id")
    )
    return pl.concat([smooth_curves(rows, weight), raw])
