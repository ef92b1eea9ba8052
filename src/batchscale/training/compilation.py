"""Compiled programs and their times: the persistent cache, the stopwatch of the engine, and traces for profilers.

Nothing happens at import; ``use_compilation_cache`` is called when an engine is made.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import filelock  # JAX too needs it: otherwise it stores nothing in a cache of limited size, and reports nothing
import jax
import jax.monitoring

from batchscale.machine import describe_processor
from batchscale.workloads.cache import cached

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
MAX_CACHE_BYTES = 4 * 2**30
COMPILE_WAIT_S = 60.0
"""The longest wait for another process that compiles the same program."""

P = ParamSpec("P")
R = TypeVar("R")


def machine_id() -> str:
    """Return a hash of the processor and JAX version, for which compiled code and measured choices are valid."""
    architecture, *model = describe_processor()
    text = "\n".join([architecture, jax.__version__, *model])
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def use_compilation_cache() -> None:
    """Keep compiled programs across processes; a cache folder that the user has configured for JAX is not changed."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    update: Callable[[str, object], None] = jax.config.update
    update("jax_compilation_cache_dir", str(cached("xla", machine_id(), grows=True)))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)
    update("jax_persistent_cache_min_entry_size_bytes", 0)
    update("jax_compilation_cache_max_size", MAX_CACHE_BYTES)


def compile_in_turn(program: Callable[P, R]) -> Callable[P, R]:
    """Return a compiled program whose first call waits for that of other processes: it then loads what they compiled.

    For a program that several workers need at about the same time.
    """
    is_compiled = False

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal is_compiled
        if is_compiled:
            return program(*args, **kwargs)
        path = cached("xla", f"{machine_id()}.lock", grows=True)
        lock = filelock.FileLock(path, timeout=COMPILE_WAIT_S)
        with suppress(filelock.Timeout, OSError):  # then it compiles on its own
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            result = program(*args, **kwargs)
        finally:
            lock.release()
        is_compiled = True
        return result

    return call


@dataclass
class CompileCount:
    """The programs that this process has compiled (or loaded from the cache) so far, and the seconds for them."""

    programs: int = 0
    seconds: float = 0.0


_COUNT: CompileCount | None = None


def compile_count() -> CompileCount:
    """Return the running count of this process; counting starts with the first call."""
    global _COUNT
    if _COUNT is None:
        _COUNT = count = CompileCount()

        def on_duration(event: str, duration_secs: float, **_: str | int) -> None:
            if event == _COMPILE_EVENT:
                count.programs += 1
                count.seconds += duration_secs

        jax.monitoring.register_event_duration_secs_listener(on_duration)
    return _COUNT


@dataclass
class ChunkWork:
    """The steps and evaluations of a chunk, which its caller counts."""

    steps: int
    evaluations: int = 0


class Stopwatch:
    """The times of one call to the engine, and the step and evaluation times that bound the next chunk.

    The caller leaves a block only after the device has finished.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._step_time_s: float | None = None
        self._evaluation_time_s: float | None = None
        self._longest = 1
        self.start()

    def start(self) -> None:
        """Begin a new call; the times measured so far are kept."""
        self._compile_s = self._warm_up_s = self._steady_s = self._evaluation_s = 0.0
        self._steady_steps = self._steps = self._trial_steps = self._evaluations = 0

    def bound(self, num_steps: int, chunk_s: float) -> int:
        """Return the number of steps that fit in ``chunk_s``, at most ``num_steps``; first chunks are short tests."""
        if self._step_time_s is None:
            return 1
        fitting = max(1, int(chunk_s / max(self._step_time_s, 1e-9)))
        self._longest = min(max(self._longest * 8, 8), fitting)
        return min(num_steps, self._longest)

    def bound_evaluations(self, most: int, chunk_s: float) -> int:
        """Return the number of evaluations that fit in ``chunk_s``, at least one; 0 before one was timed alone."""
        if self._evaluation_time_s is None:
            return 0
        return min(most, max(1, int(chunk_s / max(self._evaluation_time_s, 1e-9))))

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Count the compile time of the block."""
        before = compile_count().seconds
        yield
        self._compile_s += compile_count().seconds - before

    @contextmanager
    def stepping(self, num_steps: int, trials: int) -> Iterator[ChunkWork]:
        """Count the block as a chunk; one that compiled something is warm-up. Evaluations are counted apart."""
        count = compile_count()
        compiled, began = count.seconds, time.perf_counter()
        work = ChunkWork(num_steps)
        yield work
        elapsed = time.perf_counter() - began
        compile_s = count.seconds - compiled
        self._steps += work.steps
        self._compile_s += compile_s
        evaluated_s = min(elapsed - compile_s, work.evaluations * (self._evaluation_time_s or 0.0))
        self._evaluation_s += evaluated_s
        self._evaluations += work.evaluations
        trained_s = max(elapsed - compile_s - evaluated_s, 0.0)
        if not work.steps:
            return
        if compile_s > 0 or self._step_time_s is None:
            self._warm_up_s += trained_s
        else:
            self._steady_s += trained_s
            self._steady_steps += work.steps
            self._trial_steps += work.steps * trials
        self._step_time_s = trained_s / work.steps

    @contextmanager
    def evaluating(self, trials: int) -> Iterator[None]:
        """Count the block as an evaluation."""
        count = compile_count()
        compiled, began = count.seconds, time.perf_counter()
        yield
        compile_s = count.seconds - compiled
        elapsed = time.perf_counter() - began - compile_s
        self._compile_s += compile_s
        self._evaluation_s += elapsed
        self._evaluations += trials
        if compile_s == 0:
            self._evaluation_time_s = min(elapsed / trials, self._evaluation_time_s or elapsed)

    def report(self) -> dict[str, float]:
        """Return the times by name; the step time is that of the population, the examples are of all its trials."""
        times = {
            "compile_s": self._compile_s,
            "warm_up_s": self._warm_up_s,
            "evaluation_s": self._evaluation_s / max(1, self._evaluations),
            "num_steps": float(self._steps),
            "train_s": self._steady_s,
        }
        if self._steady_steps:
            times["step_time_s"] = self._steady_s / self._steady_steps
            times["examples_per_s"] = self._trial_steps * self._batch_size / max(self._steady_s, 1e-12)
        return times


@contextmanager
def profiled(folder: Path | None) -> Iterator[None]:
    """Write a JAX trace of the block to the folder, for the viewers of profiles; None: no trace."""
    if folder is None:
        yield
        return
    stop: Callable[[], None] = jax.profiler.stop_trace
    jax.profiler.start_trace(str(folder))
    try:
        yield
    finally:
        stop()
