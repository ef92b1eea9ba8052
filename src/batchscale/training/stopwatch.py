"""Where the time of a call goes: compiling, warming up, steady steps, evaluation.

Stamps are taken by the caller after the device has finished.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from batchscale.training.compilation import compile_count


class Stopwatch:
    """Times of one call to the engine, and the step time that bounds the next chunk."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._step_time_s: float | None = None
        self._longest = 1
        self.start()

    def start(self) -> None:
        """Begins a new call; the step time found so far is kept."""
        self._compile_s = self._warm_up_s = self._steady_s = self._evaluation_s = 0.0
        self._steady_steps = self._steps = self._trial_steps = self._evaluations = 0

    def bound(self, num_steps: int, chunk_s: float) -> int:
        """At most so many steps as fit in ``chunk_s``; the first chunks are short, to find out how many that is."""
        if self._step_time_s is None:
            return 1
        fitting = max(1, int(chunk_s / max(self._step_time_s, 1e-9)))
        self._longest = min(max(self._longest * 8, 8), fitting)
        return min(num_steps, self._longest)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Counts compile time inside."""
        before = compile_count().seconds
        yield
        self._compile_s += compile_count().seconds - before

    @contextmanager
    def stepping(self, num_steps: int, trials: int) -> Iterator[None]:
        """Counts a chunk; one that compiled something is warm-up."""
        count = compile_count()
        compiled, began = count.seconds, time.perf_counter()
        yield
        elapsed = time.perf_counter() - began
        compile_s = count.seconds - compiled
        self._steps += num_steps
        if compile_s > 0 or self._step_time_s is None:
            self._compile_s += compile_s
            self._warm_up_s += elapsed - compile_s
        else:
            self._steady_s += elapsed
            self._steady_steps += num_steps
            self._trial_steps += num_steps * trials
        self._step_time_s = max(elapsed - compile_s, 0.0) / num_steps

    @contextmanager
    def evaluating(self, trials: int) -> Iterator[None]:
        """Counts an evaluation."""
        count = compile_count()
        compiled, began = count.seconds, time.perf_counter()
        yield
        compile_s = count.seconds - compiled
        self._compile_s += compile_s
        self._evaluation_s += time.perf_counter() - began - compile_s
        self._evaluations += trials

    def report(self) -> dict[str, float]:
        """The times by name; step time is that of the whole population, examples are those of all its trials."""
        found = {
            "compile_s": self._compile_s,
            "warm_up_s": self._warm_up_s,
            "evaluation_s": self._evaluation_s / max(1, self._evaluations),
            "num_steps": float(self._steps),
            "train_s": self._steady_s,
        }
        if self._steady_steps:
            found["step_time_s"] = self._steady_s / self._steady_steps
            found["examples_per_s"] = self._trial_steps * self._batch_size / max(self._steady_s, 1e-12)
        return found
