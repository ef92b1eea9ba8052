"""A grid of runs with their final losses, over parameters, tokens, batch size and learning rate.

Owns the CSV file of such a grid, the best loss at each batch size, and the curves of equal loss: tokens to a loss,
interpolated between the budgets that were trained. Laws over the grid are in ``budget_optima`` and ``power_law``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array
from batchscale.csv_lines import read_csv_lines
from batchscale.errors import AnalysisError, one_line

MAX_BYTES = 50_000_000
MAX_ROWS = 500_000
MAX_VALUE = 1e18
GRID_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "parameters": pl.Float64,
    "tokens": pl.Float64,
    "batch_size": pl.Float64,  # in tokens
    "learning_rate": pl.Float64,  # null where not stated
    "loss": pl.Float64,
}
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "parameters": ("parameters", "params", "num_parameters", "N"),
    "tokens": ("tokens", "train_tokens", "D"),
    "batch_size": ("batch_tokens", "batch_sequences", "batch_size", "B"),
    "learning_rate": ("learning_rate", "lr"),
    "loss": ("loss", "final_loss", "val_loss"),
    "steps": ("steps", "num_steps", "K"),
}
SAME_BUDGET = 0.015  # budgets closer than this share are one: whole steps make tokens of a batch size uneven
SHARES = (0.3, 0.5, 0.7)  # of the way from the best loss of the smallest budget to that of the largest


@dataclass(frozen=True)
class IsoLossCurve:
    """Tokens to one loss against batch size, for one model: ``points`` has batch_size and steps (tokens over batch)."""

    parameters: float
    loss: float
    points: pl.DataFrame

    @property
    def fewest_tokens(self) -> float:
        """The fewest tokens to the loss."""
        return float((self.points["batch_size"] * self.points["steps"]).to_numpy().min())


def is_grid_file(path: Path) -> bool:
    """True if the first line of a CSV file names parameters, tokens or steps, and a loss, as a grid of runs does."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            header = [name.strip() for name in file.readline(10_000).split(",")]
    except OSError:
        return False
    has = {name: _find_column(header, aliases) is not None for name, aliases in _ALIASES.items()}
    return has["loss"] and has["parameters"] and (has["tokens"] or has["steps"])


def read_grid(path: Path, sequence: int | None = None, *, merge: bool = True) -> pl.DataFrame:
    """Return the runs of a CSV file as a frame of ``GRID_SCHEMA``.

    Args:
        path: Columns parameters, tokens, batch_size and loss, and learning_rate if it was varied. ``params``, ``N``,
            ``D``, ``lr``, ``batch_tokens`` and ``batch_sequences`` are understood too, and ``steps`` instead of tokens.
            A run that diverged has an empty cell, ``nan`` or ``inf`` as its loss, and is left out.
        sequence: The tokens of a sequence, where batch sizes are given in sequences.
        merge: Make nearly equal numbers of tokens of a model one budget.

    Raises:
        AnalysisError: The file is no such table; the message names the line.
    """
    where = one_line(path, 300)
    lines = read_csv_lines(path, "a grid of runs", MAX_BYTES, AnalysisError)
    header = [name.strip() for name in next(lines, (0, []))[1]]
    places = {name: _find_column(header, aliases) for name, aliases in _ALIASES.items()}
    if places["steps"] is not None and places["tokens"] is None:
        places["tokens"] = places["steps"]
    else:
        places["steps"] = None
    missing = [name for name, place in places.items() if place is None and name not in ("learning_rate", "steps")]
    if missing:
        raise AnalysisError(
            f"{where}: the first line of a grid of runs must name parameters, tokens, batch_size and loss, and "
            f"learning_rate if it was varied. Missing: {', '.join(missing)}; found {one_line(header) or 'nothing'}."
        )
    factor = _batch_factor(header[places["batch_size"] or 0], sequence, where)
    rows: list[tuple[float | None, ...]] = []
    for line, cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise AnalysisError(f"{where}, line {line}: a row has {len(header)} cells. Found {len(cells)}.")
        if len(rows) >= MAX_ROWS:
            raise AnalysisError(f"{where}: a grid has at most {MAX_ROWS:,} runs. Found more.")
        loss = _loss(cells[places["loss"] or 0], where, line)
        values = [
            None if place is None else _number(cells[place], name, where, line)
            for name, place in places.items()
            if name not in ("loss", "steps")
        ]
        if loss is not None:
            batch = (values[2] or 0) * factor
            values[2] = batch
            if places["steps"] is not None:
                values[1] = (values[1] or 0) * batch
            rows.append((*values, loss))
    if not rows:
        raise AnalysisError(f"{where}: a grid must have at least one run with a loss. Found none.")
    grid = pl.DataFrame(rows, schema=GRID_SCHEMA, orient="row")
    return merge_budgets(grid) if merge else grid


def merge_budgets(grid: pl.DataFrame) -> pl.DataFrame:
    """Return a grid in which nearly equal numbers of tokens of a model are one budget, their geometric mean."""
    is_new = pl.col("tokens").log().diff().fill_null(1.0) > SAME_BUDGET
    ordered = grid.with_row_index("row").sort("parameters", "tokens")
    budget = (is_new | (pl.col("parameters") != pl.col("parameters").shift())).fill_null(True).cum_sum()
    low, high = pl.col("tokens").min().over(budget), pl.col("tokens").max().over(budget)
    tokens = pl.when(low == high).then("tokens").otherwise(pl.col("tokens").log().mean().over(budget).exp())
    return ordered.with_columns(tokens.alias("tokens")).sort("row").drop("row")


def best_losses(grid: pl.DataFrame) -> pl.DataFrame:
    """Return the lowest loss over learning rates at each (parameters, tokens, batch_size), with its learning rate."""
    keys = ["parameters", "tokens", "batch_size"]
    return grid.sort("loss").group_by(keys, maintain_order=True).first().sort(keys)


def tokens_to_loss(loss: float, tokens: Array, losses: Array) -> float | None:
    """Return the tokens at which losses of growing budgets first pass a loss; None if never between two budgets.

    The interpolation is linear in log tokens.

    >>> round(tokens_to_loss(2.5, np.array([1e9, 4e9]), np.array([3.0, 2.0])) / 1e9, 6)
    2.0
    """
    for i in range(len(losses) - 1):
        if losses[i] >= loss >= losses[i + 1] and losses[i] > losses[i + 1]:
            part = (losses[i] - loss) / (losses[i] - losses[i + 1])
            return float(np.exp(np.log(tokens[i]) + part * np.log(tokens[i + 1] / tokens[i])))
    return None


def iso_loss_curves(
    grid: pl.DataFrame, losses: Sequence[float] | None = None, shares: Sequence[float] = SHARES
) -> list[IsoLossCurve]:
    """Return the curves of equal loss of every model of a grid that has two token budgets or more.

    The learning rate is the best at each batch size and budget; tokens to the loss are interpolated between budgets.

    Args:
        grid: Runs of ``GRID_SCHEMA``.
        losses: The losses; None: for each model, ``shares`` of the way between the best losses of its smallest and of
            its largest budget.
        shares: Used without ``losses``.
    """
    curves = []
    for (parameters,), model in best_losses(grid).group_by("parameters", maintain_order=True):
        ends = model.group_by("tokens").agg(pl.col("loss").min()).sort("tokens")["loss"]
        goals = losses or [ends[0] + share * (ends[-1] - ends[0]) for share in shares if len(ends) > 1]
        for goal in goals:
            points = []
            for (size,), budgets in model.sort("tokens").group_by("batch_size", maintain_order=True):
                tokens = tokens_to_loss(goal, budgets["tokens"].to_numpy(), budgets["loss"].to_numpy())
                if tokens is not None:
                    points.append((float(size), tokens / float(size)))
            schema = {"batch_size": pl.Float64, "steps": pl.Float64}
            frame = pl.DataFrame(points, schema=schema, orient="row").sort("batch_size")
            if len(frame):
                curves.append(IsoLossCurve(float(parameters), float(goal), frame))
    return curves


def _find_column(header: Sequence[str], aliases: Sequence[str]) -> int | None:
    names = [name if len(name) == 1 else name.lower() for name in header]
    return next((names.index(alias) for alias in aliases if alias in names), None)


def _batch_factor(column: str, sequence: int | None, where: str) -> float:
    if column.lower() != "batch_sequences":
        return float(sequence or 1) if column.lower() != "batch_tokens" else 1.0
    if sequence is None:
        raise AnalysisError(
            f"{where}: the column batch_sequences needs the tokens of a sequence. Found none; pass --sequence 2048."
        )
    return float(sequence)


def _number(cell: str, name: str, where: str, line: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_VALUE:
        raise AnalysisError(f"{where}, line {line}: {name} is a positive number. Found {one_line(repr(cell))}.")
    return value


def _loss(cell: str, where: str, line: int) -> float | None:
    try:
        value = float(cell) if cell.strip() else math.nan
    except ValueError:
        raise AnalysisError(f"{where}, line {line}: loss is a number. Found {one_line(repr(cell))}.") from None
    return value if math.isfinite(value) else None
