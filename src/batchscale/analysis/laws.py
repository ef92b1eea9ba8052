"""Laws of B_opt, B_crit and the best learning rate over tokens and parameters: from a grid of runs, or from curves."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.budget_optima import find_optima
from batchscale.analysis.curve_analysis import Analysis, analyze_points
from batchscale.analysis.grid import iso_loss_curves
from batchscale.analysis.power_law import POINTS_SCHEMA, PowerLaw, fit_power_law
from batchscale.errors import AnalysisError

QUANTITIES = ("b_opt", "b_crit", "learning_rate")
FEWEST_SIZES = 5  # of a curve between budgets: with fewer, B_crit is hardly bounded
SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)  # losses between those of the smallest and the largest budget


@dataclass(frozen=True, eq=False)
class Laws:
    """Laws by quantity, the reason for each that is missing, and the optima of a grid (None for curves).

    ``unit`` is what tokens and batch sizes count: tokens, or examples where curves are in examples.
    """

    laws: dict[str, PowerLaw]
    refusals: dict[str, str]
    optima: pl.DataFrame | None
    unit: str = "tokens"


@dataclass(frozen=True)
class LawCurve:
    """A curve for a law: its name, its analysis, and what is known of its model.

    ``per_example`` converts batch sizes and examples to tokens.
    """

    name: str
    answer: Analysis
    parameters: float | None = None
    per_example: float = 1.0


def grid_laws(grid: pl.DataFrame) -> Laws:
    """Return the laws of a grid of runs (``GRID_SCHEMA``).

    B_opt and the learning rate are those of the lowest loss at fixed tokens. B_crit is that of the curves of equal
    loss, against the fewest tokens to that loss.

    Raises:
        AnalysisError: No budget has three batch sizes.
    """
    optima = find_optima(grid)
    group = pl.col("parameters").cast(pl.String).alias("group")
    points = {}
    for quantity, value in (("b_opt", "batch_size"), ("learning_rate", "learning_rate")):
        columns = (
            group,
            "tokens",
            "parameters",
            pl.col(value).alias("value"),
            pl.col(f"best_{value}").alias("observed"),
        )
        points[quantity] = optima.drop_nulls(value).select(*columns)
    points["b_crit"] = _critical_points(grid)
    return _fit(points, optima, "tokens")


def curve_laws(curves: Sequence[LawCurve], unit: str = "examples") -> Laws:
    """Return the laws of several curves: B_opt, B_crit and the learning rate at B_opt, against fewest examples."""
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in QUANTITIES}
    for curve in curves:
        summary = curve.answer.summary
        if summary is None:
            continue
        cheapest = summary.point(summary.regimes.cheapest)
        used = cheapest.batch_size * (cheapest.steps.value or 0) * curve.per_example
        sizes = {"b_opt": summary.optimal.batch_size.value, "b_crit": summary.critical.value}
        values = {name: None if size is None else size * curve.per_example for name, size in sizes.items()}
        values["learning_rate"] = _rate(curve.answer, cheapest.batch_size)
        for name, value in values.items():
            if value is not None and used > 0:
                rows[name].append((curve.name, used, curve.parameters, value, value))
    points = {name: pl.DataFrame(items, schema=POINTS_SCHEMA, orient="row") for name, items in rows.items()}
    return _fit(points, None, unit)


def _rate(answer: Analysis, batch_size: int) -> float | None:
    if "learning_rate" not in answer.curve.columns:
        return None
    value = answer.curve.filter(pl.col("batch_size") == batch_size)["learning_rate"]
    return None if value.is_empty() or value[0] is None else float(value[0])


def _critical_points(grid: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for curve in iso_loss_curves(grid, shares=SHARES):
        if len(curve.points) < FEWEST_SIZES:
            continue
        whole = curve.points.with_columns(pl.col("batch_size").round().cast(pl.Int64))
        summary = analyze_points(whole).summary
        if summary is None or None in (summary.critical.value, summary.critical.low, summary.critical.high):
            continue
        value = summary.critical.value
        rows.append((str(curve.parameters), curve.fewest_tokens, curve.parameters, value, value))
    return pl.DataFrame(rows, schema=POINTS_SCHEMA, orient="row")


def _fit(points: dict[str, pl.DataFrame], optima: pl.DataFrame | None, unit: str) -> Laws:
    laws, refusals = {}, {}
    for quantity in QUANTITIES:
        try:
            laws[quantity] = fit_power_law(quantity, points[quantity])
        except AnalysisError as error:
            refusals[quantity] = str(error)
    return Laws(laws, refusals, optima, unit)
