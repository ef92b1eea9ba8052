"""What is known of a trial while a search runs: a few numbers, never its measurements.

Everything here follows from the trial's rows, so it can be rebuilt from a journal or a record at any time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from batchscale.spec.goal import Goal
from batchscale.study.failure import Failure
from batchscale.study.tasks import Row


@dataclass(slots=True)
class Knowledge:
    """How far a trial is known, and what happened on the way.

    ``step`` is the last measured step (-1: nothing is known yet); ``reached_at`` the first measured step that reaches
    the goal; ``diverged_at`` the optimizer step where training diverged. ``best`` is the best value of the goal's
    metric, smaller is better whatever the direction. ``failed`` says why the trial could not be trained.
    ``recorded`` is the step that the trial is already recorded to, ``recorded_failed`` whether as INCOMPLETE.
    """

    step: int = -1
    reached_at: int | None = None
    diverged_at: int | None = None
    best: float = math.inf
    failed: Failure | None = None
    recorded: int | None = None
    recorded_failed: bool = False

    def learn(self, rows: Iterable[Row], diverged_at: int | None, goal: Goal) -> None:
        """Take in newly measured rows (growing steps, all beyond ``step``) and where training diverged, if it did."""
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
        """Whether training it further can tell nothing new."""
        return self.diverged_at is not None or self.failed is not None


UNHEARD_OF = Knowledge()
"""What is known of a trial of which nothing was ever heard; never learns anything."""
