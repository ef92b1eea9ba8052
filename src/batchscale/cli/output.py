"""What commands print: tables that fit the terminal, JSON, and the one paragraph of an error.

How wide tables are laid out is in ``table_layout``.
"""

import contextlib
import errno
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import typer

from batchscale.cli.table_layout import lay_out
from batchscale.errors import one_line

USER_MISTAKE = 2


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


def refuse(message: str) -> NoReturn:
    """Say what is wrong on standard error and end with the exit code of a user's mistake."""
    with contextlib.suppress(OSError):  # nobody may be there to read it
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        typer.echo(f"Error: {message}", err=True)
    abandon_output()
    sys.exit(USER_MISTAKE)


def describe_refusal(error: OSError, what: str | None = None) -> str:
    """What the system refused, in words; ``what`` names what it refused where the error does not."""
    where = one_line(error.filename if error.filename is not None else what or "a file or the standard output", 300)
    advice = {
        errno.ENOSPC: "Free some space, or give another place",
        errno.EDQUOT: "Ask for a larger quota, or give another place",
        errno.ENAMETOOLONG: "Give a shorter path",
        errno.ENOENT: "Give one that exists",
        errno.EACCES: "Give yourself the right to use it, or give another",
        errno.EROFS: "Give a place that can be written",
        errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    }.get(error.errno or 0, "See to it and try again")
    return f"{where}: the system must allow what the command needs. Found: {error.strerror or error}. {advice}."


def abandon_output() -> None:
    """Write nothing more: what is buffered for a reader that went away or a full disk must not fail at the end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                os.dup2(null, stream.fileno())
        os.close(null)
