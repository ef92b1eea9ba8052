"""What the engine is asked and what it answers: tasks, progress, settings. Free of JAX.

Owns no behaviour; the values here cross process boundaries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from batchscale.errors import SpecError
from batchscale.spec.durations import MAX_STEPS

Row = tuple[int, Mapping[str, float]]
"""One measurement: the step and the values by ``split/metric``."""


class Precision(StrEnum):
    """The number format of the forward and backward pass; parameters and their updates are always float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class TrialTask:
    """A trial and how far to train it.

    ``parameters`` holds searched and fixed metaparameters; the rest get the workload's defaults. Measurements with
    step > ``from_step`` are wanted; -1 asks for the one at step 0 too.
    """

    trial_id: int
    parameters: Mapping[str, float]
    seed: int
    until_step: int
    from_step: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.until_step <= MAX_STEPS:
            raise SpecError(f"A trial trains between 0 and {MAX_STEPS} steps. Found until_step {self.until_step}.")


@dataclass(frozen=True)
class TrialProgress:
    """Where a trial stands after a call to the engine.

    ``rows`` are the measurements after the task's ``from_step``, at the study's evaluation steps only. ``diverged_at``
    is the step at which the trial's flag was set; a diverged trial stays at that step. ``timing`` says where the time
    of this call went: compile_s, warm_up_s, step_time_s, evaluation_s, examples_per_s, steps.
    """

    trial_id: int
    rows: tuple[Row, ...]
    step: int
    diverged_at: int | None
    timing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineSettings:
    """How the engine runs; nothing here changes what a trial is, up to float reordering.

    ``checkpoint_dir`` may be a remote path; None keeps states in memory only. ``microbatch`` and ``population`` None
    let the engine choose. ``memory_bytes`` is what one process may use (None: its share of the machine).
    ``max_shelf_bytes`` is for the last states of ended trials. ``chunk_s`` bounds how long the device runs before
    ``should_stop`` is asked again.
    """

    checkpoint_dir: str | Path | None = None
    precision: Precision = Precision.FLOAT32
    microbatch: int | None = None
    population: int | None = None
    divergence_factor: float = 1000.0
    cache_dir: str | Path | None = None
    checkpoint_interval_s: float = 60.0
    max_checkpoint_bytes: int = 20 * 2**30
    max_parked_bytes: int = 2 * 2**30
    max_shelf_bytes: int = 2**29
    memory_bytes: int | None = None
    chunk_s: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", Precision(self.precision))
        for name in ("microbatch", "population"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"{name} is a whole number of at least 1. Found {value}.")
        if not self.divergence_factor > 1:
            raise SpecError(f"divergence_factor is a multiple above 1. Found {self.divergence_factor:g}.")
