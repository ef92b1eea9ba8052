"""The best measured value under budgets of steps and of epochs, against batch size (Figures 11, 23, 24)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import polars as pl

from batchscale.analysis import best_measurement
from batchscale.errors import BatchscaleError
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.curves import BATCH_SIZE, SHAPES
from batchscale.figures.edges import join_frames
from batchscale.figures.layout import (
    NORMAL,
    Chart,
    PanelSize,
    finish,
    inline,
    layered,
    missing_panel,
    panel_grid,
    panel_title,
)
from batchscale.figures.names import metric_label, workload_label
from batchscale.figures.notes import missing_words, note_frame, panel_notes, workload_literals, workload_values
from batchscale.figures.theme import LIGHT, Theme, series_colours
from batchscale.records.frames import Records
from batchscale.spec import Budget, Unit, WorkloadName

BUDGET_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "panel": pl.String,
    "series": pl.String,  # the budget in words: 10k, 0.5
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "metric": pl.String,
    "budget_amount": pl.Float64,
    "budget_unit": pl.String,
    "batch_size": pl.Int64,
    "value": pl.Float64,
    "step": pl.Int64,
    "trial_id": pl.Int64,
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
    """The best value per batch size and budget: a frame of ``BUDGET_SCHEMA``.

    A batch size enters a budget only if its trials were trained that far.
    """
    frames = [_panel_frame(records, panel, num_train_examples) for panel in panels]
    return join_frames(frames, BUDGET_SCHEMA, records)


def amount_label(amount: float) -> str:
    """A budget in few characters.

    >>> amount_label(200_000), amount_label(5_000_000), amount_label(0.2)
    ('200k', '5M', '0.2')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:g}{letter}"
    return f"{amount:g}"


def default_budgets(records: Records, unit: Unit, num_train_examples: int | None = None) -> tuple[Budget, ...]:
    """Budgets of the 1-2-5 series that at least one study was trained for and that leave something to see."""
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
    frame: pl.DataFrame,
    *,
    theme: Theme = LIGHT,
    title: str | None = None,
    columns: int = 2,
    size: PanelSize = NORMAL,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Chart:
    """A family of lines per panel, one per budget, from dark (small) to bright (large).

    Args:
        frame: Of ``BUDGET_SCHEMA``.
        theme: Colours.
        title: Over all panels.
        columns: Panels in a row.
        size: Of each panel.
        limits: Ends of the value axis, by panel, where a part is zoomed.
    """
    charts: list[Chart] = [
        _panel(part, theme, size, (limits or {}).get(part["panel"][0]))
        for part in frame.partition_by("panel", maintain_order=True)
    ]
    if not charts:
        charts = [missing_panel("", "no workloads to draw", theme, size)]
    return finish(panel_grid(charts, columns), theme, title)


def budget_panels(
    records: Records, metric: str, budgets: Mapping[Unit, Sequence[Budget]], *, maximize: bool = False
) -> list[BudgetPanel]:
    """A panel per workload and unit of budgets."""
    return [
        BudgetPanel(f"{workload_label(name)}: budgets in {unit}", name, metric, tuple(chosen), maximize)
        for name in records.workloads
        for unit, chosen in budgets.items()
    ]


def _panel_frame(
    records: Records, panel: BudgetPanel, num_train_examples: int | Mapping[str, int] | None
) -> pl.DataFrame:
    place = {"panel": panel.title, "metric": panel.metric, **workload_values(panel.workload)}
    chosen = records.workload(panel.workload)
    if chosen.studies.is_empty():
        return note_frame(BUDGET_SCHEMA, f"no records of {panel.workload}", **place)
    if not panel.budgets:
        return note_frame(BUDGET_SCHEMA, "no budgets: the studies have no step budget of their own", **place)
    try:
        best = best_measurement(
            chosen, panel.metric, panel.budgets, maximize=panel.maximize, num_train_examples=num_train_examples
        )
    except BatchscaleError as error:
        return note_frame(BUDGET_SCHEMA, str(error), **place)
    label = pl.col("budget_amount").map_elements(amount_label, return_dtype=pl.String)
    rows = best.with_columns(
        pl.lit(panel.title).alias("panel"),
        label.alias("series"),
        *workload_literals(panel.workload),
        pl.lit(None, dtype=pl.String).alias("note"),
    ).select(pl.col(name).cast(kind) for name, kind in BUDGET_SCHEMA.items())
    lacking = [b for b in panel.budgets if float(b.amount) not in set(best["budget_amount"])]
    if lacking:
        names = ", ".join(amount_label(budget.amount) for budget in lacking)
        note = f"no study was trained for {names} {lacking[0].unit}"
        rows = pl.concat([rows, note_frame(BUDGET_SCHEMA, note, **place)])
    return rows.sort("budget_amount", "batch_size", nulls_last=True)


def _panel(frame: pl.DataFrame, theme: Theme, size: PanelSize, limits: tuple[float, float] | None) -> Chart:
    title, metric = frame["panel"][0], frame["metric"][0]
    points = frame.drop_nulls("value").filter(pl.col("value").is_finite())
    notes = panel_notes(frame)
    if points.is_empty():
        return missing_panel(title, missing_words(frame, "nothing finite was measured"), theme, size)
    labels = points.sort("budget_amount")["series"].unique(maintain_order=True).to_list()
    unit = points["budget_unit"].drop_nulls().unique().to_list()
    colours = series_colours(theme, len(labels), ordered=True)
    legend = alt.Legend(title=f"{unit[0]}" if unit else None, orient="right", symbolSize=40)
    scale = alt.Scale(domain=labels, range=colours)
    shapes = alt.Scale(domain=labels, range=[SHAPES[i % len(SHAPES)] for i in range(len(labels))])
    colour = alt.Color("series:N", sort=None, scale=scale, legend=legend)
    shape = alt.Shape("series:N", sort=None, scale=shapes, legend=legend)
    x_span = log_range(points["batch_size"])
    x = alt.X("batch_size:Q", scale=log_scale(x_span), axis=log_axis(BATCH_SIZE, x_span))
    domain = alt.Scale(domain=list(limits), nice=False) if limits else alt.Scale(zero=False, nice=True, padding=6)
    y = alt.Y("value:Q", scale=domain, axis=alt.Axis(title=metric_label(metric), tickCount=6))
    base = alt.Chart(inline(points))
    tips = [
        alt.Tooltip("series:N", title="budget"),
        alt.Tooltip("batch_size:Q", title="batch size", format=","),
        alt.Tooltip("value:Q", title=metric_label(metric), format=".5g"),
        alt.Tooltip("step:Q", title="step", format=","),
        alt.Tooltip("trial_id:Q", title="trial"),
    ]
    layers = [
        base.mark_line(strokeWidth=1.6, clip=True).encode(x=x, y=y, color=colour, detail="series:N"),
        base.mark_point(size=26, filled=True, opacity=1, clip=True).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=tips
        ),
    ]
    return layered(layers, panel_title(title, notes, size.width), size)
