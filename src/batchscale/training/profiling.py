"""A JAX trace of whatever runs inside, for the profiler's viewers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jax


@contextmanager
def profiled(folder: Path | None) -> Iterator[None]:
    """Writes a trace to the folder; None: no trace."""
    if folder is None:
        yield
        return
    stop: Callable[[], None] = jax.profiler.stop_trace
    jax.profiler.start_trace(str(folder))
    try:
        yield
    finally:
        stop()
