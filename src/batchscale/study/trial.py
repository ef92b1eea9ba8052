"""A trial: the task an engine gets, the progress it reports, the summary a search decides on, and the outcome."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from batchscale.errors import SpecError
from batchscale.records.metadata.trial import Hardware
from batchscale.records.model import Status
from batchscale.spec.durations import MAX_STEPS
from batchscale.spec.goal import Goal
from batchscale.study.failure import Failure

Row = tuple[int, Mapping[str, float]]
"""One measurement: the step and the values by ``split/metric``."""

FINAL_REASONS = ("goal", "diverged", "failed")
"""Stop reasons that lie in the trial itself: no larger budget continues such a trial."""


class Activity(StrEnum):
    """The current activity of an engine."""

    LOADING = "loading"
    COMPILING = "compiling"
    TRAINING = "training"
    EVALUATING = "evaluating"


# --- between a study and an engine: these cross process boundaries ----------------------------------------------


@dataclass(frozen=True)
class TrialTask:
    """A trial and the step to train it to.

    ``parameters`` holds searched and fixed metaparameters; the rest get the workload's defaults. The engine returns
    measurements with step > ``from_step``; -1 includes the one at step 0.
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
    """The result of one call to the engine for one trial.

    ``rows`` are the measurements after the task's ``from_step``, at the study's evaluation steps only. ``diverged_at``
    is the step at which training diverged; a diverged trial stays at that step. ``timing`` splits the time of this
    call, by the names of `Timing`. ``hardware``, ``framework`` and ``tokens_per_example`` are set where an engine has
    better information than its worker. ``failure`` is set if the trial failed before ``until_step``, after
    measurements that are still worth recording.
    """

    trial_id: int
    rows: tuple[Row, ...]
    step: int
    diverged_at: int | None
    timing: Mapping[str, float] = field(default_factory=dict)
    hardware: Hardware | None = None
    framework: str | None = None
    failure: Failure | None = None
    tokens_per_example: int | None = None


# --- between a search and its study -----------------------------------------------------------------------------


@dataclass(slots=True)
class TrialSummary:
    """The few numbers of a trial that a search decides on; they follow from its rows, so a journal restores them.

    ``step`` is the last measured step (-1: none yet); ``reached_at`` the first measured step that reaches the goal;
    ``diverged_at`` the optimizer step where training diverged. ``best`` is the best value of the goal's metric, smaller
    is better whatever the direction. ``failed`` is set for a trial that could not be trained. ``recorded`` is the step
    that the trial is already recorded to, ``recorded_failed`` is True if as INCOMPLETE.
    """

    step: int = -1
    reached_at: int | None = None
    diverged_at: int | None = None
    best: float = math.inf
    failed: Failure | None = None
    recorded: int | None = None
    recorded_failed: bool = False

    def update(self, rows: Iterable[Row], diverged_at: int | None, goal: Goal) -> None:
        """Add rows (growing steps; those up to ``step`` are skipped) and the step of divergence, if there is one."""
        for step, metrics in rows:
            if step <= self.step:
                continue
            self.step = step
            value = metrics.get(goal.metric, math.nan)
            if math.isfinite(value):
                self.best = min(self.best, -value if goal.maximize else value)
            if self.reached_at is None and goal.is_reached_by(value) and (diverged_at is None or step < diverged_at):
                self.reached_at = step
        if diverged_at is not None:
            self.diverged_at = diverged_at

    @property
    def over(self) -> bool:
        """True if the trial diverged or failed: training it further changes nothing."""
        return self.diverged_at is not None or self.failed is not None


UNSTARTED = TrialSummary()
"""The summary of a trial that was never started; must not be updated."""


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A request to train the trial of a search's point up to ``until``, an evaluation step."""

    point: int
    until: int


@dataclass(frozen=True)
class TrialOutcome:
    """The end of a trial: its status, the last recorded step, and the stop reason."""

    status: Status
    step: int
    reason: str

    @property
    def may_continue(self) -> bool:
        """True if a larger step budget, or more finishers, could train the trial longer."""
        return self.reason not in FINAL_REASONS
