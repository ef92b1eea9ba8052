"""The rules of a search, applied to one of its trials: until when it counts, and how it ends."""

from bisect import bisect_right
from dataclasses import dataclass

from batchscale.records.model import Status
from batchscale.study.stop_rules.rule import Rule
from batchscale.study.trial import TrialOutcome, TrialSummary

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
