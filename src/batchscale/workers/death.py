"""Why a worker process ended, for people: its exit code or signal, and the last lines it wrote."""

import contextlib
import signal
from pathlib import Path

from batchscale.log_tail import last_lines
from batchscale.study.failure import Failure


def describe_death(code: int, log: Path) -> Failure:
    """Why a process ended, with the last lines that it wrote."""
    lines = last_lines(log)
    if code < 0:
        with contextlib.suppress(ValueError):
            return Failure(f"A worker was killed by signal {signal.Signals(-code).name}.", lines)
    return Failure(f"A worker exited with code {code}.", lines)
