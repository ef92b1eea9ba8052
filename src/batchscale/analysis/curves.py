"""A curve as points: checked arrays of batch sizes and steps, and the CSV file that they are read from."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from batchscale.csv_lines import read_csv_lines
from batchscale.errors import AnalysisError, one_line

MAX_BYTES = 10_000_000
MAX_ROWS = 100_000
MAX_SIZES = 1_000  # the laws of a curve are compared with every size at once
MAX_VALUE = 2.0**53
_FEWEST_FOR_SPACING = 3

Array = NDArray[np.float64]
AnyArray = np.ndarray[Any, Any]


def curve_points(curve: pl.DataFrame) -> tuple[Array, Array]:
    """Return batch sizes and steps by growing batch size; rows without steps (goal not reached) are left out.

    Raises:
        AnalysisError: A column is missing, a batch size appears twice, or a value is not a positive number.
    """
    for name in ("batch_size", "steps"):
        if name not in curve.columns:
            raise AnalysisError(f"A curve has the columns batch_size and steps. Found {one_line(curve.columns)}.")
    points = curve.select(pl.col("batch_size").cast(pl.Float64), pl.col("steps").cast(pl.Float64)).drop_nulls()
    points = points.sort("batch_size")
    sizes, steps = points["batch_size"].to_numpy(), points["steps"].to_numpy()
    if not (np.isfinite(sizes).all() and np.isfinite(steps).all() and (sizes > 0).all() and (steps > 0).all()):
        raise AnalysisError("Batch sizes and steps of a curve must be positive numbers.")
    twice = sizes[1:][sizes[1:] == sizes[:-1]]
    if twice.size:
        raise AnalysisError(
            f"A batch size must appear once in a curve. Found {twice[0]:g} more than once; select one workload and "
            "one goal."
        )
    return sizes, steps


def read_curve(path: Path | str) -> pl.DataFrame:
    """Return the rows of a curve file: ``batch_size`` and ``steps`` (Float64), by growing batch size and steps.

    A batch size may have several rows, one per run. An empty cell of ``steps`` is a run that did not reach the
    goal: its steps are null. A file with a column ``spacing``, the number of steps between two evaluations, has it
    as a third one; null for an empty cell.

    Other columns are ignored.

    Raises:
        AnalysisError: The file is no such table; the message names the line.
    """
    where = one_line(path, 300)
    rows = read_csv_lines(Path(path), "a curve of batch_size and steps", MAX_BYTES, AnalysisError)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    for name in ("batch_size", "steps"):
        if header.count(name) != 1:
            raise AnalysisError(
                f"{where}: the first line must name the columns batch_size and steps, once each. Found "
                f"{one_line(header) if header else 'nothing'}."
            )
    if header.count("spacing") > 1:
        raise AnalysisError(f"{where}: the first line must name the column spacing at most once. Found it more often.")
    at_size, at_steps = header.index("batch_size"), header.index("steps")
    at_spacing = header.index("spacing") if "spacing" in header else None
    points: list[tuple[float, float | None, float | None]] = []
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise AnalysisError(f"{where}, line {line}: a row has {len(header)} cells. Found {len(row)}.")
        steps = _number(row[at_steps], "steps", where, line) if row[at_steps].strip() else None
        spacing = None
        if at_spacing is not None and row[at_spacing].strip():
            spacing = _number(row[at_spacing], "spacing", where, line)
        points.append((_number(row[at_size], "batch_size", where, line), steps, spacing))
        if len(points) > MAX_ROWS:
            raise AnalysisError(f"{where}: a curve has at most {MAX_ROWS} rows. Found more.")
    sizes = len({size for size, _, _ in points})
    if sizes > MAX_SIZES:
        raise AnalysisError(f"{where}: a curve has at most {MAX_SIZES:,} batch sizes. Found {sizes:,}.")
    schema = {"batch_size": pl.Float64, "steps": pl.Float64, "spacing": pl.Float64}
    frame = pl.DataFrame(points, schema=schema, orient="row")
    return (
        frame.sort("batch_size", "steps")
        if at_spacing is not None
        else frame.drop("spacing").sort("batch_size", "steps")
    )


def _number(cell: str, name: str, where: str, line: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_VALUE:
        raise AnalysisError(f"{where}, line {line}: {name} is a positive number. Found {one_line(repr(cell))}.")
    if name == "batch_size" and not value.is_integer():
        raise AnalysisError(f"{where}, line {line}: batch_size is a whole number. Found {one_line(repr(cell))}.")
    return value


def detect_spacing(steps: Array) -> float:
    """Return the number of steps between evaluations that measured steps show: the interval that divides them all.

    0 where they show none: there are fewer than three, they are all the same, or they have no common divisor. The
    fewest steps themselves are such an interval only if they appear twice: halves of halves divide each other too.

    >>> detect_spacing(np.array([500.0, 300.0, 250.0, 250.0])), detect_spacing(np.array([501.0, 300.0, 250.0]))
    (50.0, 0.0)
    """
    if len(steps) < _FEWEST_FOR_SPACING or not np.equal(steps, np.floor(steps)).all() or np.ptp(steps) == 0:
        return 0.0
    divisor = int(np.gcd.reduce(steps.astype(np.int64)))
    is_grid = divisor > 1 and (divisor < steps.min() or int((steps == divisor).sum()) > 1)
    return float(divisor) if is_grid else 0.0
