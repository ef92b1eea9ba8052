"""The interface of a stop rule.

Promises that every rule keeps, so that the result of a search never depends on which trial was trained first:

* `finish` follows from its arguments alone, is an evaluation step and at most the step budget.
* More goal steps, or earlier ones, never make it later: so bounds on them bound the finish, from both sides.
* `order` changes the cost of a search, never its result: every request whose trial is not running is yielded sooner or
  later, for at least one evaluation beyond the trial's last measured step.

`SearchRules` applies a rule to one trial of a search: until when it counts, and how it ends.
"""

import importlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import ClassVar

from batchscale.records.model import Status
from batchscale.study.trial import TrialOutcome, TrialRequest, TrialSummary


class Requeue(Enum):
    """The place of a trial that comes back from training: ready now, ready later, or to be found by `Rule.order`."""

    NOW = 1
    LATER = 2
    REORDER = 3


class Rule(ABC):
    """When the trials of a search end, and which of them are trained first."""

    ends_at_goal: ClassVar[bool]
    """True if a trial ends at its first measurement that reaches the goal."""

    stops_early: ClassVar[bool] = True
    """True if a trial that does not diverge may end before its step budget."""

    uses_finishers: ClassVar[bool] = False
    """True if `finish` depends on the number of finishers."""

    depends_on_goals: ClassVar[bool] = True
    """True if `finish` depends on the goal steps; otherwise it gets none, which saves work."""

    ends_together: ClassVar[bool] = False
    """True if a trial's end depends on the others: then trials are recorded when their search is decided."""

    cut_reason: ClassVar[str] = "budget"
    """The stop reason of a trial that others ended before its step budget."""

    @abstractmethod
    def finish(self, goal_steps: Iterable[int], train_steps: int, finishers: int) -> int:
        """Return the step beyond which no trial of the search is trained.

        Args:
            goal_steps: the steps at which the study's trials reach the goal, growing; beyond any budget for those
                that do not.
            train_steps: the step budget.
            finishers: the number of trials that must reach the goal.
        """

    @property
    def saves_at_goal(self) -> bool:
        """True if a trial that reaches the goal may save steps, its own or those of others."""
        return self.ends_at_goal or self.depends_on_goals

    @property
    def by_point(self) -> bool:
        """True if the rule keeps the default order, by point."""
        return type(self).order is Rule.order

    def order(
        self,
        requests: Sequence[TrialRequest],
        points: Sequence[TrialSummary],
        steps: tuple[int, ...],  # noqa: ARG002 - rules with rounds need it
        running: Container[int],
    ) -> Iterator[TrialRequest]:
        """Yield the requests that may be trained now, best first; a started trial is finished before another starts.

        Args:
            requests: all requests of the search.
            points: the summaries of its trials, by point.
            steps: the evaluation steps.
            running: the points that are being trained.
        """
        yield from sorted(  # few states are held at once
            (request for request in requests if request.point not in running),
            key=lambda request: (request.point >= len(points) or points[request.point].step < 0, request.point),
        )

    def rank(self, point: int, trial: TrialSummary) -> tuple[float, int]:
        """Return the sort key of a point within `order`: points are yielded by growing rank, no two are equal."""
        return (trial.step < 0, point)

    def requeue(self, until: int, step: int, steps: tuple[int, ...]) -> Requeue:  # noqa: ARG002
        """Return where an undecided trial belongs that comes back from training, without sorting all others.

        Args:
            until: the step of the first request that is ready.
            step: the last measured step of the trial.
            steps: the evaluation steps.
        """
        return Requeue.NOW if self.by_point else Requeue.REORDER


NEVER = 2**62


@dataclass(frozen=True)
class SearchRules:
    """The number of non-divergent trials a search must have, their evaluation steps, and the stop rule.

    ``others_reached`` are the steps at which trials of the study's other searches reached the goal. A finish is the
    step beyond which no trial of the search is trained.
    """

    rule: Rule
    steps: tuple[int, ...]
    trials: int
    max_attempts: int
    finishers: int = 1
    others_reached: tuple[int, ...] = ()

    @property
    def train_steps(self) -> int:
        """The step budget."""
        return self.steps[-1]

    def end(self, trial: TrialSummary, finish: int) -> int:
        """Return the step at which a trial ends that does not diverge before."""
        if not self.rule.ends_at_goal or trial.reached_at is None:
            return finish
        return min(finish, trial.reached_at)

    def lost_from(self, trial: TrialSummary) -> int | None:
        """Return the earliest finish with which a trial is lost (diverged or failed); None if it always counts."""
        if trial.failed is not None:
            return -1
        if trial.diverged_at is None:
            return None
        if trial.recorded is not None and trial.recorded >= trial.diverged_at:
            return -1  # what is recorded stays so
        return trial.diverged_at if trial.diverged_at <= self.end(trial, NEVER) else None

    def earliest_goal(self, trial: TrialSummary) -> int:
        """Return the first step at which a trial may reach the goal, or did."""
        if trial.reached_at is not None:
            return trial.reached_at
        if trial.over:
            return NEVER
        following = bisect_right(self.steps, trial.step)
        return self.steps[following] if following < len(self.steps) else NEVER

    def is_undecided(self, trial: TrialSummary, finish: int) -> bool:
        """True if a trial must be trained further, provided that it belongs to the search."""
        return not trial.over and trial.step < self.end(trial, finish)

    def outcome(self, trial: TrialSummary, finish: int) -> TrialOutcome:
        """Return how a trial ends."""
        if trial.failed is not None:
            return TrialOutcome(Status.INCOMPLETE, max(trial.step, 0), "failed")
        lost_from = self.lost_from(trial)
        if lost_from is not None and lost_from <= finish:
            assert trial.diverged_at is not None
            return TrialOutcome(Status.INFEASIBLE, trial.diverged_at, "diverged")
        end = self.end(trial, finish)
        if self.rule.ends_at_goal and trial.reached_at == end:
            return TrialOutcome(Status.COMPLETE, end, "goal")
        return TrialOutcome(Status.COMPLETE, end, "budget" if end == self.train_steps else self.rule.cut_reason)

    def must_record(self, trial: TrialSummary, outcome: TrialOutcome) -> bool:
        """True if a trial has come to this outcome and is not recorded that far."""
        if not trial.over and trial.step < outcome.step:
            return False
        if trial.recorded is None or trial.recorded < outcome.step:
            return True
        return not trial.recorded_failed and trial.failed is not None


@cache
def find_rule(name: str) -> Rule:
    """Return the rule that an experiment file calls by this name."""
    rule: Rule = importlib.import_module(f"batchscale.study.stop_rules.{name}").RULE
    return rule
