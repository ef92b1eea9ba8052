"""``goal``: a trial ends at its first measurement that reaches the goal, or at its step budget."""

from collections.abc import Iterable
from typing import final

from batchscale.study.stop_rules.rule import Rule


@final
class GoalRule(Rule):
    """Each trial on its own."""

    ends_at_goal = True
    depends_on_goals = False

    def finish(self, goal_steps: Iterable[int], train_steps: int, finishers: int) -> int:  # noqa: ARG002
        """Return the step budget."""
        return train_steps


RULE = GoalRule()
