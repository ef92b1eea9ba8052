"""``budget``: every trial is trained to its step budget."""

from collections.abc import Iterable
from typing import final

from batchscale.study.stop_rules.rule import Rule


@final
class BudgetRule(Rule):
    """Whole training curves, whatever they reach."""

    ends_at_goal = False
    stops_early = False
    depends_on_goals = False

    def finish(self, goal_steps: Iterable[int], train_steps: int, finishers: int) -> int:  # noqa: ARG002
        """Return the step budget."""
        return train_steps


RULE = BudgetRule()
