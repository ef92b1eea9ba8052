"""The output of commands: tables that fit the terminal, JSON, and the stage of a command that takes long.

A table that is too wide wraps its words first; if that is not enough, each row becomes a block of lines. Numbers are
never cut or wrapped.
"""

import json
import math
import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import typer

GAP = "  "
NARROWEST = 12
"""A column of text is wrapped to no fewer characters than this, nor than its longest word."""
SILENT_S = 2.0  # a command that ends within this time prints no stage
STAGE_EVERY_S = 5.0


def print_json(value: Any) -> None:
    """Print one JSON document; numbers that JSON lacks (NaN, infinity) must be null already."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def print_json_line(values: dict[str, Any]) -> None:
    """Print one JSON object on a line of its own; a number that JSON lacks becomes null."""
    finite = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}
    typer.echo(json.dumps(finite, allow_nan=False, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> None:
    """Print a table with a header; columns in ``right`` (by position) are aligned to the right.

    In a terminal the header is bold and the table at most as wide as the terminal. In a pipe it is plain text, as wide
    as needed unless the environment sets ``COLUMNS``.
    """
    cells = [[_cell_text(cell) for cell in row] for row in rows]
    header, lines = lay_out(columns, cells, frozenset(right), available_width())
    for line in header:
        typer.echo(styled(line, bold=True))
    for line in lines:
        typer.echo(line)


def styled(text: str, **style: Any) -> str:
    """Return text with the escapes of a style (bold, dim, fg); plain in a pipe, and where ``NO_COLOR`` is set."""
    return typer.style(text, **style) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def available_width() -> int | None:
    """Return the characters per line of standard output: of the terminal, or ``COLUMNS``; None if unlimited."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _cell_text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def lay_out(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: frozenset[int], width: int | None
) -> tuple[list[str], list[str]]:
    r"""Return the lines of the header and of the rows; ``right`` are the positions that are aligned to the right.

    >>> header, lines = lay_out(["batch size", "note"], [["8", "two searches"]], frozenset([0]), 19)
    >>> print("\n".join(header + lines))
    batch  note
     size
        8  two searches
    """
    full = [max(len(name), *(len(row[i]) for row in cells)) if cells else len(name) for i, name in enumerate(columns)]
    if width is None or _total_width(full) <= width:
        return _lay_out_columns(columns, cells, right, full)
    widths = _fit_widths(columns, cells, right, width)
    if widths is None:
        return [], _lay_out_blocks(columns, cells, width)
    return _lay_out_columns(columns, cells, right, widths)


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _fit_widths(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: frozenset[int], width: int
) -> list[int] | None:
    """Return widths that fit: headers wrapped at their words, then the widest columns of text; None if none fit."""
    widths = []
    for i, name in enumerate(columns):
        longest_word = max(map(len, name.split()), default=0)
        widths.append(max([longest_word, *(len(row[i]) for row in cells)]))
    smallest = {}
    for i in set(range(len(columns))) - right:
        words = [word for row in (columns, *cells) for word in row[i].split()]
        smallest[i] = max([NARROWEST, *map(len, words)])
    while (excess := _total_width(widths) - width) > 0:
        spare = {i: widths[i] - limit for i, limit in smallest.items() if widths[i] > limit}
        if not spare:
            return None
        widest = max(spare, key=lambda i: widths[i])
        widths[widest] -= min(excess, spare[widest])
    return widths


def _lay_out_columns(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: frozenset[int], widths: Sequence[int]
) -> tuple[list[str], list[str]]:
    def row_lines(row: Sequence[str]) -> list[str]:
        wrapped = [[text] if len(text) <= w else textwrap.wrap(text, w) for text, w in zip(row, widths, strict=True)]
        lines = []
        for k in range(max(map(len, wrapped), default=0)):
            parts = [texts[k] if k < len(texts) else "" for texts in wrapped]
            padded = (
                part.rjust(w) if i in right else part.ljust(w)
                for i, (part, w) in enumerate(zip(parts, widths, strict=True))
            )
            lines.append(GAP.join(padded).rstrip())
        return lines

    return row_lines(columns), [line for row in cells for line in row_lines(row)]


def _lay_out_blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return each row as lines of name and value, with an empty line between rows."""
    longest = max(map(len, columns), default=0)
    lines: list[str] = []
    for row in cells:
        if lines:
            lines.append("")
        for name, text in zip(columns, row, strict=True):
            label = name.ljust(longest) + GAP
            parts = textwrap.wrap(text, max(1, width - len(label)), break_long_words=False) or [""]
            lines.append((label + parts[0]).rstrip())
            lines += [" " * len(label) + part for part in parts[1:]]
    return lines


class Stages:
    """Prints the current stage to standard error after two seconds, and every five seconds from then on."""

    def __init__(self, silent_s: float = SILENT_S, every_s: float = STAGE_EVERY_S) -> None:
        self._silent_s, self._every_s = silent_s, every_s
        self._stage = "working"
        self._start = time.perf_counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_stages, daemon=True)

    def __enter__(self) -> "Stages":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def enter(self, stage: str) -> None:
        """Set the current stage, such as "drawing 24 panels"."""
        self._stage = stage

    def _print_stages(self) -> None:
        wait_s = self._silent_s
        while not self._ended.wait(wait_s):
            typer.echo(f"{time.perf_counter() - self._start:.0f} s: {self._stage} …", err=True)
            wait_s = self._every_s
