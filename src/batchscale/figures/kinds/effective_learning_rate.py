"""Each trial's best validation value against its effective learning rate (Figure 20)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis.budgets import best_per_trial
from batchscale.analysis.metaparameters import EFFECTIVE, add_effective_learning_rate
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.frames import (
    WORKLOAD_SCHEMA,
    MissingDataError,
    empty_reason,
    find_studies,
    join_frames,
    literals,
    panel_notes,
    rows_or_note,
    with_edges,
    with_fixed,
    workload_values,
)
from batchscale.figures.kind import FigureKind
from batchscale.figures.kinds.map import STAR
from batchscale.figures.layout import SMALL, Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import metaparameter_label, metric_label, study_titles
from batchscale.records.frames import Records
from batchscale.records.model import Status
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

LOOK = Look(columns=4, size=SMALL)
EFFECTIVE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    **WORKLOAD_SCHEMA,
    "metric": pl.String,
    "goal": pl.String,
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "effective_learning_rate": pl.Float64,
    "value": pl.Float64,  # the best the trial measured
    "best": pl.Boolean,
    "note": pl.String,
}


@dataclass(frozen=True)
class EffectivePanel:
    """One study, and the goal whose metric is drawn."""

    title: str
    workload: WorkloadName
    batch_size: int
    goal: Goal


def effective_frame(records: Records, panels: Iterable[EffectivePanel]) -> pl.DataFrame:
    """Return rate and best value of every COMPLETE trial: a frame of ``EFFECTIVE_SCHEMA``."""
    frames = [with_edges(_rows(records, panel), records, panel.goal) for panel in panels]
    return join_frames(frames, EFFECTIVE_SCHEMA)


def effective_panels(records: Records, goal: Goal) -> list[EffectivePanel]:
    """Return a panel per study."""
    heads = study_titles(records.workloads)
    return [
        EffectivePanel(f"{heads[name]} {size:,}", name, size, goal)
        for name in records.workloads
        for size in records.workload(name).studies["batch_size"].sort()
    ]


def plot_effective(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per study."""
    return draw_panels(frame, _panel, look, notes=["dashed: the goal"])


def _rows(records: Records, panel: EffectivePanel) -> pl.DataFrame:
    name, metric = panel.workload, panel.goal.metric
    panel_values = {"panel": panel.title, "metric": metric, "goal": str(panel.goal), **workload_values(name)}

    def make() -> pl.DataFrame:
        study = find_studies(records, name, panel.batch_size).filter(status=Status.COMPLETE.value)
        values = best_per_trial(study, name, metric, maximize=panel.goal.maximize)
        trials = add_effective_learning_rate(with_fixed(study.trials, study)).join(
            values, on=["batch_size", "trial_id"], how="left"
        )
        if trials.is_empty():
            raise MissingDataError("no COMPLETE trial")
        if EFFECTIVE not in trials.columns or trials[EFFECTIVE].is_null().all():
            raise MissingDataError("no learning rate and momentum are recorded")
        drawn = trials.drop_nulls([EFFECTIVE, "value"])
        if drawn.is_empty():
            raise MissingDataError("no finite value was measured")
        rank = pl.struct(pl.col("value") * (-1 if panel.goal.maximize else 1), "trial_id").rank("ordinal")
        return drawn.with_columns(
            *literals(panel_values), (rank == 1).alias("best"), pl.lit(None, dtype=pl.String).alias("note")
        )

    return rows_or_note(EFFECTIVE_SCHEMA, panel_values, make)


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    metric, theme = frame["metric"][0], look.theme
    points = frame.drop_nulls("value").filter(pl.col("effective_learning_rate") > 0)
    if points.is_empty():
        return empty_reason(frame, "no positive learning rate")
    span = log_range(points["effective_learning_rate"], 10, 0.15, 1)
    x = alt.X(
        "effective_learning_rate:Q", scale=log_scale(span), axis=log_axis(metaparameter_label(EFFECTIVE), span, 4)
    )
    y = alt.Y(
        "value:Q",
        scale=alt.Scale(zero=False, nice=False, padding=8),
        axis=alt.Axis(title=metric_label(metric, unit=False), tickCount=5),
    )
    tips = [
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("effective_learning_rate:Q", title="effective learning rate", format=".4g"),
        alt.Tooltip("value:Q", title=metric_label(metric), format=".5g"),
    ]
    dots = alt.Chart(inline(points.filter(~pl.col("best"))))
    star = alt.Chart(inline(points.filter("best")))
    goal = alt.Chart(alt.InlineData(values=[{"value": Goal.parse(frame["goal"][0]).value}]))
    layers = [
        goal.mark_rule(strokeDash=[5, 4], color=theme.muted).encode(y=y),
        dots.mark_point(size=18, filled=True, opacity=1, fillOpacity=0.75, color=theme.good).encode(
            x=x, y=y, tooltip=tips
        ),
        star.mark_point(
            shape=STAR, size=120, filled=True, fill=theme.star, stroke=theme.text, strokeWidth=0.8, opacity=1
        ).encode(x=x, y=y, tooltip=tips),
    ]
    return Drawn(layers, panel_notes(frame))


KIND = FigureKind(
    "each trial's best value against its effective learning rate",
    lambda request: effective_frame(request.counted, effective_panels(request.counted, request.goal)),
    plot_effective,
    LOOK,
)
