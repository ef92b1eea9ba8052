"""How long a trial trains and when it is measured, turned into steps in one place."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from batchscale.errors import SpecError


class Unit(StrEnum):
    """In what a step budget is given."""

    STEPS = "steps"
    EXAMPLES = "examples"
    EPOCHS = "epochs"


class Spacing(StrEnum):
    """How a given number of evaluations lies over a trial."""

    EVEN = "even"
    LOG = "log"


MAX_STEPS = 2**31 - 1  # a step is a 32-bit number where it is counted
MAX_MEASUREMENTS = 100_000
"""Of one trial: each is an evaluation of the model and a line of its records."""
ALL = "all"


def to_steps(amount: float, unit: Unit, batch_size: int, num_train_examples: int | None) -> int:
    """A duration in optimizer steps, rounded up, at least one.

    >>> to_steps(2, Unit.EPOCHS, batch_size=64, num_train_examples=1000)
    32
    """
    examples = amount
    if unit is Unit.EPOCHS:
        if num_train_examples is None:
            raise SpecError("A budget in epochs needs a training set with an end; give steps or examples instead.")
        examples = amount * num_train_examples
    steps = amount if unit is Unit.STEPS else examples / batch_size
    if not 0 < steps <= MAX_STEPS:
        raise SpecError(f"A trial trains between 1 and {MAX_STEPS} steps. Found {amount:g} {unit} = {steps:g} steps.")
    return max(1, math.ceil(steps))


@dataclass(frozen=True)
class Budget:
    """The longest a trial may train, for all batch sizes or for some of them otherwise.

    ``at_least_steps`` keeps large batch sizes from getting too few steps of an epoch or example budget.
    """

    amount: float
    unit: Unit
    at_least_steps: int = 1
    per_batch_size: Mapping[int, float] = field(default_factory=dict)

    def steps(self, batch_size: int, num_train_examples: int | None) -> int:
        """The step budget of a study."""
        amount = self.per_batch_size.get(batch_size, self.amount)
        return max(self.at_least_steps, to_steps(amount, self.unit, batch_size, num_train_examples))


@dataclass(frozen=True)
class EvaluationPlan:
    """When trials are measured, and on how many examples of each split (``"all"`` or a number; 0 leaves it out).

    Either every ``every`` steps, or ``count`` times. After step 0 nothing is measured before the share ``start`` of the
    step budget: no measurements are spent where no trial can have reached the goal. All trials of a study are measured
    at the same steps, so that no trial gets more chances than another.
    """

    every: int | None = None
    count: int = 100
    spacing: Spacing = Spacing.EVEN
    start: float = 0.0
    examples: Mapping[str, int | str] = field(default_factory=lambda: {"train": 1000, "val": ALL, "test": 0})

    def steps(self, train_steps: int) -> tuple[int, ...]:
        """The measured steps, growing, from 0 to ``train_steps``.

        >>> EvaluationPlan(count=4).steps(1000)
        (0, 250, 500, 750, 1000)
        >>> EvaluationPlan(count=3, spacing=Spacing.LOG).steps(1000)
        (0, 10, 100, 1000)
        >>> EvaluationPlan(count=2, spacing=Spacing.LOG, start=0.01).steps(10_000)
        (0, 100, 1000, 10000)
        """
        self.count_measurements(train_steps)
        return _measured_steps(self.every, self.count, self.spacing, self.start, train_steps)

    def count_measurements(self, train_steps: int) -> int:
        """At most how often a trial of this budget is measured besides its first and last step, without a list of them.

        Raises:
            SpecError: too often.
        """
        if self.every is None:
            count, given = min(self.count, train_steps), f"count = {self.count:,}"
        else:
            count = -(-(train_steps - round(self.start * train_steps)) // self.every)
            given = f"every = {self.every:,}"
        if count > MAX_MEASUREMENTS:
            raise SpecError(
                f"A trial is measured at most {MAX_MEASUREMENTS:,} times. Found evaluation {given}, which makes "
                f"{count:,} in {train_steps:,} steps; measure less often, or train for fewer steps."
            )
        return count


@functools.lru_cache(maxsize=4)  # the batch sizes of an experiment often have the same step budget
def _measured_steps(every: int | None, count: int, spacing: Spacing, start: float, train_steps: int) -> tuple[int, ...]:
    first = round(start * train_steps)
    if every is not None:
        inner = set(range(-(-first // every) * every, train_steps, every))
    elif spacing is Spacing.EVEN:
        inner = {round(first + (train_steps - first) * i / count) for i in range(count)}
    else:
        low = max(first, 1)
        inner = {round(low * (train_steps / low) ** (i / count)) for i in range(0 if first else 1, count)}
    return tuple(sorted({0, *(step for step in inner if step >= first), train_steps}))
