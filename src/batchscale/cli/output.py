"""What commands print: tables that line up in a terminal and in a pipe, and JSON."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer


def print_json(value: Any) -> None:
    """One JSON document on standard output; numbers that JSON lacks (NaN, infinity) must be null already."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> None:
    """A table with one header line; columns in ``right`` (by position) are aligned to the right.

    In a terminal the header is bold. Everywhere else it is plain text, as wide as it needs to be.
    """
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) if cells else len(name) for i, name in enumerate(columns)]
    to_right = set(right)

    def line(row: Sequence[str]) -> str:
        padded = (
            text.rjust(w) if i in to_right else text.ljust(w)
            for i, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(padded).rstrip()

    header = line(columns)
    typer.echo(typer.style(header, bold=True) if sys.stdout.isatty() else header)
    for row in cells:
        typer.echo(line(row))


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
