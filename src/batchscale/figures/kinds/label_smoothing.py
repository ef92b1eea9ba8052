"""Studies split by the value of one metaparameter, such as label smoothing (Figures 7 and 19).

Two kinds of panel: the best measured value per batch size, and the steps to a goal per batch size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis.budgets import best_measurement
from batchscale.analysis.results import steps_to_result
from batchscale.figures.axes import log_axis, log_range, log_scale, size_axis
from batchscale.figures.frames import (
    BOUND,
    BOUND_WORDS,
    NOT_REACHED,
    WORKLOAD_SCHEMA,
    MissingDataError,
    empty_reason,
    ended_first,
    find_studies,
    join_frames,
    literals,
    panel_notes,
    panel_unit,
    rows_or_note,
    with_edges,
    workload_values,
)
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.kinds.budget import bound_points
from batchscale.figures.kinds.curves import STEPS, legend_under, series_scales
from batchscale.figures.kinds.metaparameter import check_metaparameter
from batchscale.figures.layout import Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import goal_label, metaparameter_label, metric_label, workload_label
from batchscale.formatting import metaparameter_text
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

SMOOTHING = "label_smoothing"
LOOK = Look(columns=2)
SPLIT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # "label smoothing 0.1"
    **WORKLOAD_SCHEMA,
    "quantity": pl.String,  # the metric whose best value is shown, or "steps"
    "goal": pl.String,  # null where the best value is shown
    "split_by": pl.String,
    "split_value": pl.Float64,
    "batch_size": pl.Int64,
    "value": pl.Float64,
    "trial_id": pl.Int64,
    BOUND: pl.Boolean,
    "note": pl.String,
}


@dataclass(frozen=True)
class SplitPanel:
    """A workload split by a metaparameter: steps to ``goal``, or with ``best`` the best value of its metric."""

    title: str
    workload: WorkloadName
    goal: Goal
    split_by: str
    best: bool
    first_trials: int | None = None


def split_frame(records: Records, panels: Iterable[SplitPanel]) -> pl.DataFrame:
    """Return the points of all panels: a frame of ``SPLIT_SCHEMA``."""
    frames = [with_edges(_rows(records, panel), records, panel.goal, panel.first_trials) for panel in panels]
    return join_frames(frames, SPLIT_SCHEMA)


def split_panels(records: Records, goal: Goal, split_by: str, first_trials: int | None = None) -> list[SplitPanel]:
    """Return both kinds of panel for every workload."""
    return [
        SplitPanel(f"{workload_label(name)}: {words}", name, goal, split_by, best, first_trials)
        for name in records.workloads
        for best, words in ((True, "best value"), (False, f"steps to {goal_label(goal)}"))
    ]


def plot_split(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a line per value of the metaparameter in every panel."""
    return draw_panels(frame, _panel, look, of="workloads")


def _rows(records: Records, panel: SplitPanel) -> pl.DataFrame:
    name, metric, by = panel.workload, panel.goal.metric, panel.split_by
    panel_values = {
        "panel": panel.title,
        "quantity": metric if panel.best else "steps",
        "goal": None if panel.best else str(panel.goal),
        "split_by": by,
        **workload_values(name),
    }
    words = metaparameter_label(by)

    def make() -> pl.DataFrame:
        selected = find_studies(records, name, first_trials=panel.first_trials)
        if by not in selected.metaparameters or selected.trials[by].is_null().all():
            raise MissingDataError(f"no {words} is recorded")
        if panel.best:
            results = best_measurement(selected, metric, maximize=panel.goal.maximize, by=[by])
        else:
            results = steps_to_result(selected, panel.goal, by=[by]).rename({"steps": "value"})
        plans = selected.studies.select("batch_size", "train_steps")
        ended = (
            results.drop_nulls(by)
            .join(ended_first(selected, name, by), on=["batch_size", by], how="left")
            .join(plans, on="batch_size", how="left")
        )
        cut = (pl.col("shortest") < pl.col("train_steps")).fill_null(False)
        label = pl.col(by).map_elements(lambda value: f"{words} {metaparameter_text(value)}", return_dtype=pl.String)
        return ended.with_columns(
            *literals(panel_values),
            label.alias("series"),
            pl.col(by).alias("split_value"),
            (cut if panel.best else pl.lit(False)).alias(BOUND),
            pl.when(pl.col("value").is_null()).then(pl.lit(NOT_REACHED)).alias("note"),
        ).sort("split_value", "batch_size")

    return rows_or_note(SPLIT_SCHEMA, panel_values, make)


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    quantity, theme, width = frame["quantity"][0], look.theme, look.size.width
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    if points.is_empty():
        return empty_reason(frame)
    labels = points.sort("split_value")["series"].unique(maintain_order=True).to_list()
    colour, shape = series_scales(labels, theme, False, legend_under(labels, width))
    x_span = log_range(points["batch_size"])
    x = alt.X(
        "batch_size:Q",
        scale=log_scale(x_span),
        axis=size_axis(x_span, points["batch_size"], width, unit=panel_unit(points)),
    )
    if quantity == "steps":
        y_span = log_range(points["value"], margin=0.6)
        y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(STEPS, y_span))
    else:
        axis = alt.Axis(title=f"best {metric_label(quantity)}", tickCount=6)
        y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=False, padding=8), axis=axis)
    base = alt.Chart(inline(points))
    tips = [
        alt.Tooltip("series:N", title="series"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title=STEPS if quantity == "steps" else metric_label(quantity), format=",.5~g"),
        alt.Tooltip("trial_id:Q", title="trial"),
    ]
    layers = [
        base.mark_line(strokeWidth=1.7).encode(x=x, y=y, color=colour, detail="series:N"),
        base.mark_point(size=34, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
        *(mark.encode(color=colour, shape=shape) for mark in bound_points(points, look, x, y)),
    ]
    return Drawn(layers, [*panel_notes(frame), *([BOUND_WORDS] if points[BOUND].any() else [])])


def _data(request: FigureRequest) -> pl.DataFrame:
    by = request.metaparameter or SMOOTHING
    if request.metaparameter is not None:
        check_metaparameter(request.records, by)
    return split_frame(request.records, split_panels(request.records, request.goal, by, request.first_trials))


KIND = FigureKind(
    "best value and steps to result, split by the values of --metaparameter (label smoothing)",
    _data,
    plot_split,
    LOOK,
)
