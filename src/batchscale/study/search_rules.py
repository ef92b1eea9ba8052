"""What a search must give, and what that means for one of its points: until when it counts, and how it ends."""

from bisect import bisect_right
from dataclasses import dataclass

from batchscale.records.model import Status
from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Ending
from batchscale.study.stop_rules.rule import Rule

NEVER = 2**62


@dataclass(frozen=True)
class SearchRules:
    """What a search must give: how many non-divergent trials, measured when, stopped by which rule.

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

    def end(self, point: Knowledge, finish: int) -> int:
        """The step at which a point ends that does not diverge before."""
        if not self.rule.ends_at_goal or point.reached_at is None:
            return finish
        return min(finish, point.reached_at)

    def lost_from(self, point: Knowledge) -> int | None:
        """The earliest finish with which a point does not count; None if it counts with any."""
        if point.failed is not None:
            return -1
        if point.diverged_at is None:
            return None
        if point.recorded is not None and point.recorded >= point.diverged_at:
            return -1  # what is recorded stays so
        return point.diverged_at if point.diverged_at <= self.end(point, NEVER) else None

    def earliest_goal(self, point: Knowledge) -> int:
        """The first step at which a point may reach the goal, or did."""
        if point.reached_at is not None:
            return point.reached_at
        if point.over:
            return NEVER
        following = bisect_right(self.steps, point.step)
        return self.steps[following] if following < len(self.steps) else NEVER

    def is_open(self, point: Knowledge, finish: int) -> bool:
        """Whether a point must be known further, if the search has it."""
        return not point.over and point.step < self.end(point, finish)

    def ending(self, point: Knowledge, finish: int) -> Ending:
        """How a point ends."""
        if point.failed is not None:
            return Ending(Status.INCOMPLETE, max(point.step, 0), "failed")
        lost_from = self.lost_from(point)
        if lost_from is not None and lost_from <= finish:
            assert point.diverged_at is not None
            return Ending(Status.INFEASIBLE, point.diverged_at, "diverged")
        end = self.end(point, finish)
        if self.rule.ends_at_goal and point.reached_at == end:
            return Ending(Status.COMPLETE, end, "goal")
        return Ending(Status.COMPLETE, end, "budget" if end == self.train_steps else self.rule.cut_reason)

    def is_due(self, point: Knowledge, ending: Ending) -> bool:
        """Whether a point has come to this end and is not recorded that far."""
        if not point.over and point.step < ending.step:
            return False
        if point.recorded is None or point.recorded < ending.step:
            return True
        return not point.recorded_failed and point.failed is not None
