"""The best batch size and learning rate of each budget of a grid: one model, one number of tokens.

At each batch size the learning rate is the lowest point of a parabola in its logarithm, through the runs around the
best one. B_opt is the lowest point of a parabola in log batch size, through those losses; sizes count less the farther
their loss lies above the lowest (``SOFT``), because far from the optimum no loss is a parabola.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array
from batchscale.errors import AnalysisError

SOFT = 0.004  # a loss this share above the lowest weighs e^-1; neighbouring runs differ by about a third of it
AROUND = 2  # runs on either side of the best one that a parabola passes through
BEYOND = 0.35  # a lowest point lies at most this far outside the runs, in logarithms: half a step of a grid
FEWEST_RUNS = 3
OPTIMA_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "parameters": pl.Float64,
    "tokens": pl.Float64,
    "batch_size": pl.Float64,  # B_opt, in tokens; null without a minimum between the sizes
    "learning_rate": pl.Float64,  # the best at B_opt; null where no learning rate is stated
    "loss": pl.Float64,  # at B_opt
    "best_batch_size": pl.Float64,  # of the run with the lowest loss
    "best_learning_rate": pl.Float64,
    "best_loss": pl.Float64,
    "sizes": pl.Int64,
    "note": pl.String,  # the reason for a missing B_opt
}
AT_EDGE = "the lowest loss is at the {} batch size tried"
TOO_FEW = "fewer than three batch sizes"
NO_MINIMUM = "the losses show no minimum over batch size"


@dataclass(frozen=True)
class BestRates:
    """The best learning rate and its loss at each batch size of one budget; NaN rates where none is stated."""

    log_sizes: Array
    log_rates: Array
    losses: Array


def best_rates(budget: pl.DataFrame) -> BestRates:
    """Return the profile of one budget over batch size (rows of ``GRID_SCHEMA``)."""
    rows = []
    for (size,), runs in budget.sort("batch_size", "learning_rate").group_by("batch_size", maintain_order=True):
        losses = runs["loss"].to_numpy()
        rates = np.log(runs["learning_rate"].cast(pl.Float64).fill_null(math.nan).to_numpy())
        place, loss = _lowest(rates, losses)
        rows.append((math.log(float(size)), place, loss))
    sizes, rates, losses = np.array(rows).T
    return BestRates(sizes, rates, losses)


def _lowest(places: Array, losses: Array) -> tuple[float, float]:
    """Return place and loss of the lowest point of a parabola around the best run, else of the best run itself."""
    best = int(np.argmin(losses))
    near = slice(max(best - AROUND, 0), best + AROUND + 1)
    x, y = places[near] - places[best], losses[near]
    if len(np.unique(x)) >= FEWEST_RUNS and np.isfinite(x).all():
        a, b, c = np.polyfit(x, y, 2)
        if a > 0:
            lowest = -b / (2 * a)
            if x.min() - BEYOND <= lowest <= x.max() + BEYOND:
                return float(places[best] + lowest), float(c - b * b / (4 * a))
    return float(places[best]), float(losses[best])


def find_optima(grid: pl.DataFrame) -> pl.DataFrame:
    """Return the optimum of each model and budget of a grid: a frame of ``OPTIMA_SCHEMA``.

    Raises:
        AnalysisError: No budget has three batch sizes.
    """
    rows = [
        (*key, *_optimum(best_rates(budget)), *_best_run(budget))
        for key, budget in grid.sort("parameters", "tokens").group_by("parameters", "tokens", maintain_order=True)
    ]
    columns = ("parameters", "tokens", "batch_size", "learning_rate", "loss", "sizes", "note")
    best = ("best_batch_size", "best_learning_rate", "best_loss")
    schema = {name: OPTIMA_SCHEMA[name] for name in (*columns, *best)}
    frame = pl.DataFrame(rows, schema=schema, orient="row").select(list(OPTIMA_SCHEMA))
    if (frame["sizes"] < FEWEST_RUNS).all():
        raise AnalysisError(
            "A law over a grid needs three batch sizes or more for the same model and tokens. Found at most "
            f"{frame['sizes'].max()!r}; train more batch sizes for each number of tokens."
        )
    return frame


def _best_run(budget: pl.DataFrame) -> tuple[object, ...]:
    return budget.sort("loss").select("batch_size", "learning_rate", "loss").row(0)


def _optimum(rates: BestRates) -> tuple[object, ...]:
    """Return B_opt, its learning rate and loss, the number of sizes, and the reason for a missing value."""
    x, losses = rates.log_sizes, rates.losses
    best, count = int(np.argmin(losses)), len(x)
    if count < FEWEST_RUNS:
        return None, None, None, count, TOO_FEW
    if best in (0, count - 1):
        return None, None, None, count, AT_EDGE.format("smallest" if best == 0 else "largest")
    weights = np.exp((losses.min() - losses) / (SOFT * losses.min()))
    a, b, c = np.polyfit(x - x[best], losses, 2, w=np.sqrt(weights))
    lowest = -b / (2 * a) if a > 0 else math.nan
    if not x[0] <= x[best] + lowest <= x[-1]:
        return None, None, None, count, NO_MINIMUM
    size = math.exp(x[best] + lowest)
    rate = None
    if np.isfinite(rates.log_rates).all():
        slope, level = np.polyfit(x - x[best], rates.log_rates, 1, w=np.sqrt(weights))
        rate = math.exp(level + slope * lowest)
    return size, rate, float(c - b * b / (4 * a)), count, None
