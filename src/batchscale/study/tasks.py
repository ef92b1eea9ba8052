"""What an engine is asked and what it answers: tasks and progress, which cross process boundaries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from batchscale.errors import SpecError
from batchscale.records.metadata.trial import Hardware
from batchscale.spec.durations import MAX_STEPS
from batchscale.study.failure import Failure

Row = tuple[int, Mapping[str, float]]
"""One measurement: the step and the values by ``split/metric``."""


class Activity(StrEnum):
    """What an engine does at a moment."""

    LOADING = "loading"
    COMPILING = "compiling"
    TRAINING = "training"
    EVALUATING = "evaluating"


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
    of this call went, by the names of `Timing`. ``hardware`` is what it trained on and ``framework`` what
    with, where an engine knows better than its worker. ``failure`` says why it did not come as far as it was asked to,
    if it failed after measurements that are worth telling first.
    """

    trial_id: int
    rows: tuple[Row, ...]
    step: int
    diverged_at: int | None
    timing: Mapping[str, float] = field(default_factory=dict)
    hardware: Hardware | None = None
    framework: str | None = None
    failure: Failure | None = None
