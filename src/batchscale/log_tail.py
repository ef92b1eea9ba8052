"""Reads the end of a log file."""

import contextlib
import os
from pathlib import Path

LAST_LINES = 15
MAX_BYTES = 20_000


def read_tail(log: Path, max_bytes: int = MAX_BYTES) -> str:
    """Return the end of a log as text; empty if it cannot be read."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
        return file.read().decode(errors="replace")
    return ""


def last_lines(log: Path) -> tuple[str, ...]:
    """Return the last lines of a log; none if it cannot be read."""
    return tuple(read_tail(log).splitlines()[-LAST_LINES:])


def open_log(handle: int) -> Path:
    """Return the path of a log that this process has open, even if it has no name."""
    return Path(f"/dev/fd/{handle}")
