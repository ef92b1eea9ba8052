"""A curve from a CSV file with the columns batch_size and steps, one row per size or one per run; the rest is left."""

import math
from pathlib import Path

import polars as pl

from batchscale.csv_lines import read_csv_lines
from batchscale.errors import AnalysisError, one_line

MAX_BYTES = 10_000_000
MAX_ROWS = 100_000
MAX_SIZES = 1_000  # the laws of a curve are held against every size at once
MAX_VALUE = 2.0**53


def read_curve(path: Path | str) -> pl.DataFrame:
    """The rows of a curve file: a frame of ``batch_size`` and ``steps`` (Float64), by growing batch size and steps.

    A batch size may stand in several rows, one per run. An empty cell of ``steps`` is a run that did not reach the
    goal: its steps are null.

    Raises:
        AnalysisError: the file cannot be read as such a table, with the line that cannot.
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
    at_size, at_steps = header.index("batch_size"), header.index("steps")
    points: list[tuple[float, float | None]] = []
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise AnalysisError(f"{where}, line {line}: a row has {len(header)} cells. Found {len(row)}.")
        steps = _number(row[at_steps], "steps", where, line) if row[at_steps].strip() else None
        points.append((_number(row[at_size], "batch_size", where, line), steps))
        if len(points) > MAX_ROWS:
            raise AnalysisError(f"{where}: a curve has at most {MAX_ROWS} rows. Found more.")
    sizes = len({size for size, _ in points})
    if sizes > MAX_SIZES:
        raise AnalysisError(f"{where}: a curve has at most {MAX_SIZES:,} batch sizes. Found {sizes:,}.")
    frame = pl.DataFrame(points, schema={"batch_size": pl.Float64, "steps": pl.Float64}, orient="row")
    return frame.sort("batch_size", "steps")


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
