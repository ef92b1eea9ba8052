"""Maps of trials over learning rate and 1 - momentum: reached the goal, did not, diverged (Figures 9 and 10).

Both axes are logarithmic, so that equal effective learning rates lie on straight lines.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.errors import SpecError
from batchscale.figures.axes import LogRange, log_axis, log_range, log_scale, superscript
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
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.layout import SMALL, Chart, Drawn, Look, draw_panels, inline, legend_below
from batchscale.figures.names import study_titles
from batchscale.figures.theme import POWER_FONT, Theme
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

LOOK = Look(size=SMALL)
STAR = (
    "M0,-1L0.235,-0.324L0.951,-0.309L0.38,0.124L0.588,0.809L0,0.4L-0.588,0.809L-0.38,0.124L-0.951,-0.309L-0.235,-0.324Z"
)
OUTCOMES = (Outcome.REACHED.value, Outcome.NOT_REACHED.value, Outcome.INFEASIBLE.value)
OUTCOME_WORDS = {"reached": "reached the goal", "not_reached": "did not reach it", "infeasible": "infeasible: diverged"}
BEST = "fewest steps"
LABEL_ROOM = 0.14  # of the width of a small panel, for the label of a line

MAP_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    **WORKLOAD_SCHEMA,
    "goal": pl.String,
    "budget": pl.String,  # "1 epochs"; null without one
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "learning_rate": pl.Float64,
    "momentum": pl.Float64,
    "one_minus_momentum": pl.Float64,
    "outcome": pl.String,  # reached, not_reached or infeasible; INCOMPLETE trials are left out
    "steps_to_goal": pl.Int64,
    "best": pl.Boolean,
    "note": pl.String,
}


@dataclass(frozen=True)
class MapPanel:
    """The trials of one study and their outcomes for a goal within a budget."""

    title: str
    workload: WorkloadName
    batch_size: int
    goal: Goal
    budget: Budget | None = None


def map_frame(
    records: Records, panels: Iterable[MapPanel], num_train_examples: int | Mapping[str, int] | None = None
) -> pl.DataFrame:
    """Return all COMPLETE and INFEASIBLE trials of the panels: a frame of ``MAP_SCHEMA``."""
    frames = [with_edges(_rows(records, panel, num_train_examples), records, panel.goal) for panel in panels]
    return join_frames(frames, MAP_SCHEMA)


def study_panels(records: Records, goal: Goal, budget: Budget | None = None) -> list[MapPanel]:
    """Return a panel per study of the records."""
    heads = study_titles(records.workloads)
    return [
        MapPanel(f"{heads[name]} {size:,}", name, size, goal, budget)
        for name in records.workloads
        for size in records.workload(name).studies["batch_size"].sort()
    ]


def plot_map(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per study; all panels share their axes, so that regions can be compared."""
    points = _drawable(frame)
    words = outcome_words(points)
    x_span, y_span = (log_range(points[name], 10, 0.15, 1) for name in ("learning_rate", "one_minus_momentum"))
    return draw_panels(
        frame,
        lambda part, look: _panel(part, look, x_span, y_span, words),
        look,
        one_legend=True,
    )


def _rows(records: Records, panel: MapPanel, num_train_examples: int | Mapping[str, int] | None) -> pl.DataFrame:
    panel_values = {
        "panel": panel.title,
        "goal": str(panel.goal),
        "budget": None if panel.budget is None else f"{panel.budget.amount:g} {panel.budget.unit}",
        **workload_values(panel.workload),
    }

    def make() -> pl.DataFrame:
        selected = find_studies(records, panel.workload, panel.batch_size)
        outcomes = trial_outcomes(selected, panel.goal, budget=panel.budget, num_train_examples=num_train_examples)
        counted = with_fixed(outcomes.filter(pl.col("outcome").is_in(OUTCOMES)), selected)
        if counted.is_empty():
            raise MissingDataError("no COMPLETE or INFEASIBLE trial")
        for name in ("learning_rate", "momentum"):
            if name not in counted.columns or counted[name].is_null().all():
                raise MissingDataError(f"no {name.replace('_', ' ')} was tuned or fixed; see effective-learning-rate")
        rank = pl.struct("steps_to_goal", "trial_id").rank("ordinal")
        reached = pl.col("outcome") == Outcome.REACHED.value
        return counted.with_columns(
            *literals(panel_values),
            (1 - pl.col("momentum")).alias("one_minus_momentum"),
            (reached & (rank.over("outcome") == 1)).alias("best"),
            pl.lit(None, dtype=pl.String).alias("note"),
        )

    return rows_or_note(MAP_SCHEMA, panel_values, make)


def _drawable(frame: pl.DataFrame) -> pl.DataFrame:
    positive = [(pl.col(name) > 0) & pl.col(name).is_finite() for name in ("learning_rate", "one_minus_momentum")]
    return frame.filter(*positive)


def _panel(frame: pl.DataFrame, look: Look, x_span: LogRange, y_span: LogRange, outcomes: Sequence[str]) -> Drawn | str:
    theme, points, notes = look.theme, _drawable(frame), panel_notes(frame)
    if points.is_empty():
        return empty_reason(frame, "no positive learning rate and momentum below one")
    if not frame["best"].any():
        notes.append("no trial reached the goal")
    x = alt.X("learning_rate:Q", scale=log_scale(x_span), axis=log_axis("learning rate η", x_span, 5, grid=False))
    y = alt.Y("one_minus_momentum:Q", scale=log_scale(y_span), axis=log_axis("1 − momentum γ", y_span, 5, grid=False))
    best = pl.when("best").then(pl.lit(BEST)).otherwise(pl.col("outcome").replace(OUTCOME_WORDS))
    words = points.with_columns(best.alias("outcome"))
    colour, shape = outcome_scales(theme, outcomes, legend_below("lines: effective learning rate η/(1 − γ)"))
    base = alt.Chart(inline(words.filter(~pl.col("best"))))
    dots = base.mark_point(size=20, filled=True, opacity=1, fillOpacity=0.85).encode(
        x=x, y=y, color=colour, shape=shape, tooltip=_tooltips()
    )
    star = (
        alt.Chart(inline(words.filter("best")))
        .mark_point(size=130, filled=True, stroke=theme.text, strokeWidth=0.8, opacity=1)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=_tooltips())
    )
    layers = [*contours(x_span, y_span, theme, x, y), dots, star]
    return Drawn(layers, notes)


def outcome_words(points: pl.DataFrame) -> list[str]:
    """Return the outcomes that are drawn, in words; the best trials are an outcome of their own."""
    others = set(points.filter(~pl.col("best"))["outcome"])
    return [*(OUTCOME_WORDS[name] for name in OUTCOMES if name in others), *([BEST] if points["best"].any() else [])]


def outcome_scales(theme: Theme, outcomes: Sequence[str], legend: alt.Legend | None) -> tuple[alt.Color, alt.Shape]:
    """Return colour and shape of the outcomes of trials that are drawn, the best one a star."""
    marks = dict(
        zip(
            [*(OUTCOME_WORDS[name] for name in OUTCOMES), BEST],
            [(theme.good, "circle"), (theme.poor, "circle"), (theme.bad, "cross"), (theme.star, STAR)],
            strict=True,
        )
    )
    labels = list(outcomes)
    colours, shapes = [marks[label][0] for label in labels], [marks[label][1] for label in labels]
    return (
        alt.Color("outcome:N", sort=None, legend=legend, scale=alt.Scale(domain=labels, range=colours)),
        alt.Shape("outcome:N", sort=None, legend=legend, scale=alt.Scale(domain=labels, range=shapes)),
    )


def contours(x_span: LogRange, y_span: LogRange, theme: Theme, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return lines of equal effective learning rate, one per power of ten, labelled where they enter the panel."""
    first, last = math.ceil(x_span.low - y_span.high), math.floor(x_span.high - y_span.low)
    rows = []
    for exponent in range(first, last + 1):
        low, high = max(x_span.low, y_span.low + exponent), min(x_span.high, y_span.high + exponent)
        if high - low > 0.05:
            rows += [(exponent, 10**end, 10 ** (end - exponent)) for end in (low, high)]
    lines = pl.DataFrame(rows, schema=["exponent", "learning_rate", "one_minus_momentum"], orient="row")
    if lines.is_empty():
        return []
    chart: alt.Chart = (
        alt.Chart(inline(lines))
        .mark_line(color=theme.frame, strokeWidth=0.8, aria=False)
        .encode(x=x, y=y, detail="exponent:N")
    )
    ends = lines.group_by("exponent", maintain_order=True).last()
    room = x_span.low + LABEL_ROOM * (x_span.high - x_span.low)  # further left a label would cover the axis
    ends = ends.filter(pl.col("learning_rate") >= 10**room)
    labels = ends.with_columns(
        pl.col("exponent").map_elements(lambda e: f"10{superscript(e)}", return_dtype=pl.String).alias("label")
    )
    text: alt.Chart = (
        alt.Chart(inline(labels))
        .mark_text(
            align="right", baseline="top", dx=-3, dy=6, fontSize=9, font=POWER_FONT, color=theme.muted, aria=False
        )
        .encode(x=x, y=y, text="label:N")
    )
    return [chart, text]


def _tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("trial_id:Q", title="trial"),
        alt.Tooltip("outcome:N", title="outcome"),
        alt.Tooltip("learning_rate:Q", title="learning rate", format=".4g"),
        alt.Tooltip("momentum:Q", title="momentum", format=".5g"),
        alt.Tooltip("steps_to_goal:Q", title="steps to goal", format=","),
    ]


def _data(request: FigureRequest) -> pl.DataFrame:
    if len(request.budgets) > 1:
        raise SpecError(
            f"A map is drawn within one budget. Found {len(request.budgets)}; give one of --steps, --epochs."
        )
    panels = study_panels(request.records, request.goal, request.budgets[0] if request.budgets else None)
    return map_frame(request.records, panels, request.num_train_examples)


KIND = FigureKind(
    "trials over learning rate and momentum: reached the goal, did not, infeasible", _data, plot_map, LOOK
)
