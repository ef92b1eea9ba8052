"""The interface of a stop rule.

Promises that every rule keeps, so that the result of a search never depends on what happened to be trained first:

* `finish` follows from its arguments alone, is an evaluation step and at most the step budget.
* More goal steps, or earlier ones, never make it later: then bounds on them bound the finish, from both sides.
* `order` changes what a search costs, never its result: every need that is not busy comes up sooner or later, asked
  for at least one evaluation further than it is known.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import Enum
from typing import ClassVar

from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Need


class Rejoins(Enum):
    """Where a trial belongs that was trained: among the needs on offer, not among them, or that must be worked out."""

    OFFER = 1
    LATER = 2
    UNKNOWN = 3


class Rule(ABC):
    """When the trials of a search end, and which of them are trained first."""

    ends_at_goal: ClassVar[bool]
    """Whether a trial ends at its first measurement that reaches the goal."""

    stops_early: ClassVar[bool] = True
    """Whether a trial that does not diverge may end before its step budget."""

    uses_finishers: ClassVar[bool] = False
    """Whether `finish` depends on how many finishers are wanted."""

    looks_at_goals: ClassVar[bool] = True
    """Whether `finish` depends on the goal steps; a rule that says no is given none, which saves work."""

    ends_together: ClassVar[bool] = False
    """Whether a trial's end depends on the others: then trials are recorded when their search is decided."""

    cut_reason: ClassVar[str] = "budget"
    """The stop reason of a trial that others ended before its step budget."""

    @abstractmethod
    def finish(self, goal_steps: Iterable[int], train_steps: int, finishers: int) -> int:
        """The step beyond which no trial of the search is trained.

        Args:
            goal_steps: where the study's trials reach the goal, growing; later than any budget for those that do not.
            train_steps: the step budget.
            finishers: how many trials shall have reached the goal.
        """

    @property
    def hangs_on_goals(self) -> bool:
        """Whether a trial that reaches the goal may spare steps, its own or those of others."""
        return self.ends_at_goal or self.looks_at_goals

    @property
    def in_turn(self) -> bool:
        """Whether trials are trained in the order of their points, as `order` does where a rule has none of its own."""
        return type(self).order is Rule.order

    def order(
        self,
        needs: Sequence[Need],
        points: Sequence[Knowledge],
        steps: tuple[int, ...],  # noqa: ARG002 - rules with rounds need it
        busy: Container[int],
    ) -> Iterator[Need]:
        """The needs that may be trained now, best first; a started trial is finished before another starts.

        Args:
            needs: all needs of the search.
            points: what is known of its points.
            steps: the evaluation steps.
            busy: the points that are being trained.
        """
        yield from sorted(  # few states are held at once
            (need for need in needs if need.point not in busy),
            key=lambda need: (need.point >= len(points) or points[need.point].step < 0, need.point),
        )

    def rank(self, point: int, known: Knowledge) -> tuple[float, int]:
        """The place of a point among those that `order` gives: they come by growing ranks, no two the same."""
        return (known.step < 0, point)

    def rejoins(self, until: int, step: int, steps: tuple[int, ...]) -> Rejoins:  # noqa: ARG002
        """Where a trial comes back to that is still needed, without a look at all others.

        Args:
            until: how far the first of the needs on offer is to come.
            step: how far the trial came.
            steps: the evaluation steps.
        """
        return Rejoins.UNKNOWN
