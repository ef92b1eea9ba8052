"""What commands print: tables that line up in a terminal and in a pipe, JSON, and the one paragraph of an error."""

import contextlib
import errno
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import typer

from batchscale.errors import one_line

USER_MISTAKE = 2


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
