"""What commands print: tables that fit the terminal, and JSON.

How wide tables are laid out is in ``table_layout``.
"""

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from batchscale.cli.table_layout import lay_out


def print_json(value: Any) -> None:
    """One JSON document on standard output; numbers that JSON lacks (NaN, infinity) must be null already."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> None:
    """A table with a header; columns in ``right`` (by position) are aligned to the right.

    In a terminal the header is bold and the table as wide as the terminal at most. In a pipe it is plain text, as wide
    as it needs to be unless the environment says ``COLUMNS``.
    """
    cells = [[_text(cell) for cell in row] for row in rows]
    header, lines = lay_out(columns, cells, frozenset(right), available_width())
    for line in header:
        typer.echo(typer.style(line, bold=True) if sys.stdout.isatty() else line)
    for line in lines:
        typer.echo(line)


def available_width() -> int | None:
    """The characters of a line on standard output: those of the terminal, or ``COLUMNS``; None without a bound."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def print_json_line(values: dict[str, Any]) -> None:
    """One JSON object on a line of its own; a number that JSON lacks becomes null."""
    sound = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}
    typer.echo(json.dumps(sound, allow_nan=False, ensure_ascii=False))
