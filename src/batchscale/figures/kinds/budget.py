"""The best measured value under budgets of steps and of epochs, against batch size (Figures 11, 23, 24)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis.budgets import best_measurement
from batchscale.figures.axes import log_range, log_scale, size_axis
from batchscale.figures.frames import (
    BOUND,
    BOUND_WORDS,
    WORKLOAD_SCHEMA,
    MissingDataError,
    empty_reason,
    ended_first,
    find_studies,
    first_measured,
    join_frames,
    literals,
    note_frame,
    panel_notes,
    panel_unit,
    rows_or_note,
    with_edges,
    workload_values,
)
from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.kinds.curves import series_scales
from batchscale.figures.layout import Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.names import metric_label, workload_label
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.workload_name import WorkloadName

LOOK = Look(columns=2)
BUDGET_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # the budget as text: 10k, 0.5
    **WORKLOAD_SCHEMA,
    "metric": pl.String,
    "budget_amount": pl.Float64,
    "budget_unit": pl.String,
    "batch_size": pl.Int64,
    "value": pl.Float64,
    "step": pl.Int64,
    "trial_id": pl.Int64,
    BOUND: pl.Boolean,
    "note": pl.String,
}


@dataclass(frozen=True)
class BudgetPanel:
    """One workload under budgets of one unit; ``limits`` are the ends of the axis where a part is zoomed."""

    title: str
    workload: WorkloadName
    metric: str
    budgets: tuple[Budget, ...]
    maximize: bool = False
    limits: tuple[float, float] | None = None


def budget_frame(
    records: Records, panels: Iterable[BudgetPanel], num_train_examples: int | Mapping[str, int] | None = None
) -> pl.DataFrame:
    """Return the best value per batch size and budget: a frame of ``BUDGET_SCHEMA``.

    A batch size enters a budget only if its trials were trained that far and measured within it; where trials were
    stopped before it, the value is marked as a bound.
    """
    frames = [with_edges(_rows(records, panel, num_train_examples), records, None) for panel in panels]
    return join_frames(frames, BUDGET_SCHEMA)


def amount_label(amount: float) -> str:
    """Return a budget in few characters.

    >>> amount_label(200_000), amount_label(5_000_000), amount_label(0.2)
    ('200k', '5M', '0.2')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:g}{letter}"
    return f"{amount:g}"


def default_budgets(records: Records, unit: Unit, num_train_examples: int | None = None) -> tuple[Budget, ...]:
    """Return budgets of the 1-2-5 series that at least one study was trained for and that leave something to see."""
    steps = records.studies.with_columns(
        pl.when(pl.col("train_steps") > 0).then("train_steps").otherwise(None).alias("train_steps")
    ).drop_nulls("train_steps")
    if steps.is_empty():
        return ()
    reach = steps["train_steps"].cast(pl.Float64)
    if unit is Unit.EPOCHS:
        reach = reach * steps["batch_size"].cast(pl.Float64) / float(num_train_examples or 1)
    high = float(reach.max())  # type: ignore[arg-type] # not empty
    series = [digit * 10.0**power for power in range(-2, 9) for digit in (1, 2, 5)]
    return tuple(Budget(amount, unit) for amount in [a for a in series if a <= high][-8:])


def plot_budget(
    frame: pl.DataFrame, look: Look = LOOK, *, limits: Mapping[str, tuple[float, float]] | None = None
) -> Chart:
    """Draw a family of lines per panel, one per budget, from dark (small) to bright (large).

    Args:
        frame: Of ``BUDGET_SCHEMA``.
        look: The layout.
        limits: Ends of the value axis, by panel, where a part is zoomed.
    """
    zoomed = limits or {}
    return draw_panels(frame, lambda part, look: _panel(part, look, zoomed.get(part["panel"][0])), look, of="workloads")


def budget_panels(
    records: Records, metric: str, budgets: Mapping[Unit, Sequence[Budget]], *, maximize: bool = False
) -> list[BudgetPanel]:
    """Return a panel per workload and unit of budgets."""
    return [
        BudgetPanel(f"{workload_label(name)}: budgets in {unit}", name, metric, tuple(unit_budgets), maximize)
        for name in records.workloads
        for unit, unit_budgets in budgets.items()
    ]


def _rows(records: Records, panel: BudgetPanel, num_train_examples: int | Mapping[str, int] | None) -> pl.DataFrame:
    name = panel.workload
    panel_values = {"panel": panel.title, "metric": panel.metric, **workload_values(name)}
    notes: list[str] = []

    def make() -> pl.DataFrame:
        selected = find_studies(records, name)
        if not panel.budgets:
            raise MissingDataError("no budgets: the studies have no step budget of their own")
        best = best_measurement(
            selected, panel.metric, panel.budgets, maximize=panel.maximize, num_train_examples=num_train_examples
        )
        starts = first_measured(selected, name)
        start = pl.col("batch_size").replace_strict(starts, default=None, return_dtype=pl.Float64)
        inside = best.filter(start <= pl.col("limit"))
        notes.extend(_left_out(best, inside, starts, panel.budgets))
        ended = inside.join(ended_first(selected, name), on="batch_size", how="left", maintain_order="left")
        label = pl.col("budget_amount").map_elements(amount_label, return_dtype=pl.String)
        return ended.with_columns(
            *literals(panel_values),
            label.alias("series"),
            (pl.col("shortest") < pl.col("limit")).fill_null(False).alias(BOUND),
            pl.lit(None, dtype=pl.String).alias("note"),
        )

    rows = rows_or_note(BUDGET_SCHEMA, panel_values, make).sort("budget_amount", "batch_size", nulls_last=True)
    return pl.concat([rows, *(note_frame(BUDGET_SCHEMA, note, **panel_values) for note in notes)])


def _left_out(
    best: pl.DataFrame, inside: pl.DataFrame, starts: Mapping[int, int], budgets: Sequence[Budget]
) -> Iterable[str]:
    """Yield notes on budgets that no study was trained for, and on those that end before the first measurement."""
    trained = set(best["budget_amount"])
    lacking = [budget for budget in budgets if float(budget.amount) not in trained]
    if lacking:
        names = ", ".join(amount_label(budget.amount) for budget in lacking)
        yield f"no study was trained for {names} {lacking[0].unit}"
    early = best.join(inside, on=["batch_size", "budget_amount"], how="anti")
    sizes = sorted(early["batch_size"].unique())
    if sizes:
        sizes_text = ", ".join(f"{size:,} (step {starts[size]:,})" if size in starts else f"{size:,}" for size in sizes)
        yield f"budgets that end before the first measurement are left out at batch size {sizes_text}"


def _panel(frame: pl.DataFrame, look: Look, limits: tuple[float, float] | None) -> Drawn | str:
    metric, theme = frame["metric"][0], look.theme
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    if points.is_empty():
        return empty_reason(frame, "nothing finite was measured")
    labels = points.sort("budget_amount")["series"].unique(maintain_order=True).to_list()
    unit = points["budget_unit"].drop_nulls().unique().to_list()
    legend = alt.Legend(title=f"{unit[0]}" if unit else None, orient="right", symbolSize=40)
    colour, shape = series_scales(labels, theme, True, legend)
    x_span = log_range(points["batch_size"])
    axis = size_axis(x_span, points["batch_size"], look.size.width, unit=panel_unit(points))
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=axis)
    domain = alt.Scale(domain=list(limits), nice=False) if limits else alt.Scale(zero=False, nice=False, padding=8)
    y = alt.Y("value:Q", scale=domain, axis=alt.Axis(title=metric_label(metric), tickCount=6))
    base, clip = alt.Chart(inline(points)), limits is not None
    tips = [
        alt.Tooltip("series:N", title="budget"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title=metric_label(metric), format=".5g"),
        alt.Tooltip("step:Q", title="step", format=","),
        alt.Tooltip("trial_id:Q", title="trial"),
    ]
    layers = [
        base.mark_line(strokeWidth=1.6, clip=clip).encode(x=x, y=y, color=colour, detail="series:N"),
        base.mark_point(size=26, filled=True, opacity=1, clip=clip).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=tips
        ),
        *(mark.encode(color=colour, shape=shape) for mark in bound_points(points, look, x, y, clip=clip)),
    ]
    return Drawn(layers, [*panel_notes(frame), *([BOUND_WORDS] if points[BOUND].any() else [])])


def bound_points(points: pl.DataFrame, look: Look, x: alt.X, y: alt.Y, *, clip: bool = False) -> list[alt.Chart]:
    """Over the points that are only bounds: hollow ones."""
    bounds = points.filter(BOUND)
    if bounds.is_empty():
        return []
    marks: alt.Chart = (
        alt.Chart(inline(bounds))
        .mark_point(size=24, filled=False, fill=look.theme.ground, opacity=1, strokeWidth=1.5, clip=clip, aria=False)
        .encode(x=x, y=y)
    )
    return [marks]


def _data(request: FigureRequest) -> pl.DataFrame:
    by_unit: dict[Unit, tuple[Budget, ...]] = {}
    for budget in request.budgets:
        by_unit[budget.unit] = (*by_unit.get(budget.unit, ()), budget)
    if not by_unit:
        by_unit[Unit.STEPS] = default_budgets(request.counted, Unit.STEPS)
        if request.num_train_examples:
            by_unit[Unit.EPOCHS] = default_budgets(request.counted, Unit.EPOCHS, request.num_train_examples)
    panels = budget_panels(request.counted, request.goal.metric, by_unit, maximize=request.goal.maximize)
    return budget_frame(request.counted, panels, request.num_train_examples)


KIND = FigureKind("the best value of the goal's metric under budgets of --steps or --epochs", _data, plot_budget, LOOK)
