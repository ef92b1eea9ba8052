"""Rows of the CSV files that planning reads: header and numbers checked, every error with its line."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from batchscale.csv_lines import read_csv_lines
from batchscale.errors import PlanningError, one_line

MAX_BYTES = 50_000_000
MAX_VALUE = 2.0**53


@dataclass(frozen=True)
class CsvRow:
    """One line of a file: cells by column, stripped."""

    where: str
    line: int
    cells: Mapping[str, str]

    @property
    def place(self) -> str:
        """Return file and line, for a message."""
        return f"{self.where}, line {self.line}"

    def text(self, name: str) -> str:
        """Return the cell; empty if the column is missing."""
        return self.cells.get(name, "")

    def number(self, name: str, *, zero: bool = False) -> float | None:
        """Return a positive number (or 0 if ``zero``); None for an empty cell."""
        cell = self.text(name)
        if not cell:
            return None
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not (0 < value <= MAX_VALUE or (zero and value == 0)):
            rule = "a number of at least 0" if zero else "a positive number"
            raise PlanningError(f"{self.place}: {name} must be {rule}. Found {one_line(repr(cell))}.")
        return value

    def whole(self, name: str, *, zero: bool = False) -> int | None:
        """Return a whole number; None for an empty cell."""
        value = self.number(name, zero=zero)
        if value is not None and not value.is_integer():
            raise PlanningError(
                f"{self.place}: {name} must be a whole number. Found {one_line(repr(self.text(name)))}."
            )
        return None if value is None else int(value)

    def flag(self, name: str) -> bool | None:
        """Return true or false; None for an empty cell."""
        cell = self.text(name)
        if cell.lower() not in _FLAGS:
            raise PlanningError(f"{self.place}: {name} must be true or false. Found {one_line(repr(cell))}.")
        return _FLAGS[cell.lower()]

    def required(self, name: str) -> int:
        """Return a whole number.

        Raises:
            PlanningError: the cell is empty.
        """
        value = self.whole(name)
        if value is None:
            raise PlanningError(f"{self.place}: {name} is needed in every row. Found an empty cell.")
        return value


_FLAGS: Mapping[str, bool | None] = {"": None, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class CsvFile:
    """Column names and rows of a file."""

    where: str
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]


def read_csv_rows(path: Path, what: str, needed: tuple[str, ...], aliases: Mapping[str, str] | None = None) -> CsvFile:
    """Return the rows of a CSV file with a header.

    Args:
        path: The file.
        what: Its content, for messages: "a curve", "step times".
        needed: Required columns.
        aliases: Other names of columns, and the names that rows use instead.
    """
    return csv_rows(read_csv_lines(path, what, MAX_BYTES, PlanningError), one_line(path, 300), what, needed, aliases)


def csv_rows(
    lines: Iterator[tuple[int, list[str]]],
    where: str,
    what: str,
    needed: tuple[str, ...],
    aliases: Mapping[str, str] | None = None,
) -> CsvFile:
    """Return the rows of lines with a header; ``where`` names their place in messages, the rest as above."""
    header = [name.strip() for name in next(lines, (0, []))[1]]
    columns = [(aliases or {}).get(name, name) for name in header]
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    missing = [name for name in needed if name not in columns]
    if missing or twice:
        problem = f"Missing: {', '.join(missing)}" if missing else f"'{one_line(twice)}' occurs twice"
        raise PlanningError(
            f"{where}: {what} is a CSV file whose first line names the columns {', '.join(needed)}, once each. "
            f"{problem}; found {one_line(header) if header else 'nothing'}."
        )
    rows = []
    for line, cells in lines:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(columns):
            raise PlanningError(f"{where}, line {line}: a row has {len(columns)} cells. Found {len(cells)}.")
        rows.append(CsvRow(where, line, {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}))
    if not rows:
        raise PlanningError(f"{where}: {what} has at least one row below its header. Found none.")
    return CsvFile(where, tuple(columns), tuple(rows))
