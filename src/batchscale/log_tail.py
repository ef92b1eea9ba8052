"""The end of what a process printed: the one reader of a log's tail."""

import contextlib
import os
from pathlib import Path

LAST_LINES = 15
MAX_BYTES = 20_000


def read_tail(log: Path, max_bytes: int = MAX_BYTES) -> str:
    """The end of a log as text; nothing where it cannot be read."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
        return file.read().decode(errors="replace")
    return ""


def last_lines(log: Path) -> tuple[str, ...]:
    """The last lines of a log; none where it cannot be read."""
    return tuple(read_tail(log).splitlines()[-LAST_LINES:])


def open_log(handle: int) -> Path:
    """The path of a log that this process has open, also one that has no name."""
    return Path(f"/dev/fd/{handle}")
