"""The step time of a workload on this machine: the compiled program alone, warm, many times.

Times repetitions of many steps each, until the device has finished. Compiling and the first repetition are not counted.
No evaluation, no records: only what a trial does between two evaluations is timed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from batchscale.errors import RunError
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import SearchSpace
from batchscale.training.compilation import compile_count, use_compilation_cache
from batchscale.training.programs import Programs
from batchscale.training.settings import EngineSettings
from batchscale.workloads.workload import Workload

TINY = 1e-6  # a learning rate at which nothing can diverge: the time of a step does not depend on it
MAX_STEPS = 2**30
FEWEST = 3  # repetitions


@dataclass(frozen=True)
class Effort:
    """The number of repetitions of a timing, of about ``seconds`` each.

    ``clock`` is a wall clock by default; a clock of processor time ignores other work on a busy machine.
    """

    repetitions: int = 10
    seconds: float = 0.5
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        if self.repetitions < FEWEST or not 0 < self.seconds <= 3600:
            raise RunError(
                f"A step must be timed at least {FEWEST} times, for a positive number of seconds each. Found "
                f"{self.repetitions} times {self.seconds:g} s."
            )


@dataclass(frozen=True)
class StepTiming:
    """The seconds of a step in each repetition, and the seconds of compiling before."""

    batch_size: int
    step_times_s: tuple[float, ...]
    steps_per_repetition: int
    compile_s: float


def time_steps(
    workload: Workload, batch_size: int, effort: Effort | None = None, settings: EngineSettings | None = None
) -> StepTiming:
    """Return the step times of one trial alone at a batch size.

    Raises:
        RunError: the trial did not advance, or the device has too little memory.
    """
    use_compilation_cache()
    try:
        return _time_steps(
            workload, batch_size, effort or Effort(), replace(settings or EngineSettings(), population=1)
        )
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemoryError(
                f"A step of batch size {batch_size} needs more memory than the device has; give smaller --batch-sizes."
            ) from None
        raise


class OutOfMemoryError(RunError):
    """A batch size that the device cannot hold."""


def _time_steps(workload: Workload, batch_size: int, effort: Effort, settings: EngineSettings) -> StepTiming:
    compiled = compile_count().seconds
    advance = make_advance(workload, batch_size, settings)
    advance(1)
    compile_s = compile_count().seconds - compiled
    steps = _steps_for(advance, effort)
    advance(steps)  # the first repetition warms caches and is not counted
    step_times = tuple(_timed(advance, steps, effort.clock) for _ in range(effort.repetitions))
    return StepTiming(batch_size, step_times, steps, compile_s)


def make_advance(workload: Workload, batch_size: int, settings: EngineSettings) -> Callable[[int], None]:
    """Return a function that advances one trial by a number of steps, and returns when they are done."""
    metric = workload.metrics[0]
    study = Study(
        workload=workload.name,
        batch_size=batch_size,
        train_steps=MAX_STEPS,
        evaluation_steps=(MAX_STEPS,),
        space=SearchSpace(()),
        fixed={},
        trials=1,
        max_attempts=1,
        goal=Goal(f"train/{metric.name}", 0.0, metric.maximize),
        stop=StopRule.BUDGET,
        seed=0,
    )
    programs = Programs(workload, study, EvaluationPlan(count=1), settings)
    state = programs.init(0, _quiet(workload, programs.names))
    population = programs.populate(state, 1)
    until = np.full(1, MAX_STEPS, np.int32)

    def advance(num_steps: int) -> None:
        nonlocal population
        before = int(population.step[0])
        population = programs.advance(population, until, num_steps)
        done = int(population.step[0]) - before
        if done != num_steps:
            raise RunError(
                f"A timed trial of {workload.name} must advance {num_steps} steps. It advanced {done}: "
                "it diverged at its first values."
            )

    return advance


def _quiet(workload: Workload, names: Sequence[str]) -> dict[str, float]:
    """Return metaparameters that cannot diverge; a learning rate has no default, and needs none here."""
    defaults = {name: workload.defaults[name] for name in names}
    return {
        name: TINY if value is None or name == "learning_rate" else float(value) for name, value in defaults.items()
    }


def _steps_for(advance: Callable[[int], None], effort: Effort) -> int:
    """Return the steps that take about as long as a repetition, by timing more and more of them."""
    steps = 1
    while True:
        took = _timed(advance, steps, effort.clock) * steps
        if took >= effort.seconds / 4 or steps >= 2**20:
            return max(1, min(2**20, round(steps * effort.seconds / max(took, 1e-9))))
        steps *= 4


def _timed(advance: Callable[[int], None], steps: int, clock: Callable[[], float]) -> float:
    began = clock()
    advance(steps)
    return (clock() - began) / steps
