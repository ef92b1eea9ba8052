"""Why a worker process ended, for people: its exit code or signal, and the last lines it wrote."""

import contextlib
import os
import signal
from pathlib import Path

LOG_LINES = 15
MAX_LOG_BYTES = 20_000


def describe_death(code: int, log: Path) -> str:
    """Why a process ended, in words, with the last lines that it wrote."""
    if code < 0:
        with contextlib.suppress(ValueError):
            code_text = f"signal {signal.Signals(-code).name}"
            return f"A worker was killed by {code_text}.{last_lines(log)}"
    return f"A worker exited with code {code}.{last_lines(log)}"


def last_lines(log: Path) -> str:
    """The last lines of a log under a heading, on lines of their own; nothing where there are none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return ""
    return "\nIts last lines:\n" + "\n".join(lines) if lines else ""
