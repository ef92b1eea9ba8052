"""The length of a trial and the times of its measurements, converted to steps in one place."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from batchscale.errors import SpecError, one_line


class Unit(StrEnum):
    """The unit of a step budget."""

    STEPS = "steps"
    EXAMPLES = "examples"
    EPOCHS = "epochs"
    TOKENS = "tokens"


class Spacing(StrEnum):
    """The spacing of a number of evaluations over a trial."""

    EVEN = "even"
    LOG = "log"


MAX_STEPS = 2**31 - 1  # a step is a 32-bit number where it is counted
MAX_MEASUREMENTS = 100_000
"""Of one trial: each is an evaluation of the model and a line of its records."""
ALL = "all"


def to_steps(
    amount: float,
    unit: Unit,
    batch_size: int,
    num_train_examples: int | None = None,
    tokens_per_example: int | None = None,
) -> int:
    """Convert a duration to optimizer steps, rounded up, at least one.

    >>> to_steps(2, Unit.EPOCHS, batch_size=64, num_train_examples=1000)
    32
    >>> to_steps(1e6, Unit.TOKENS, batch_size=32, tokens_per_example=512)
    62
    """
    examples = amount
    if unit is Unit.EPOCHS:
        if num_train_examples is None:
            raise SpecError("A budget in epochs needs a training set of fixed size; give steps or examples.")
        examples = amount * num_train_examples
    if unit is Unit.TOKENS:
        if tokens_per_example is None:
            raise tokens_unknown(f"{amount:,.10g} tokens")
        examples = amount / tokens_per_example
    steps = amount if unit is Unit.STEPS else examples / batch_size
    if not examples >= 1 or not steps <= MAX_STEPS:
        raise SpecError(
            f"A trial must train on at least one example, for at most {MAX_STEPS:,} steps. Found a budget of "
            f"{amount:g} {unit} = {steps:g} steps."
        )
    return max(1, math.ceil(steps))


def tokens_unknown(found: str) -> SpecError:
    """Return the error of a number of tokens where nothing says how many an example has."""
    return SpecError(
        "Batch sizes, budgets and evaluations in tokens need the tokens of an example, which this workload does not "
        f"state. Found {one_line(found)}. Give tokens_per_example at the top of the file; or pack a text data set with "
        "dataset_options.sequence_length; or write examples."
    )


@dataclass(frozen=True)
class Budget:
    """The most steps, examples, epochs or tokens of a trial, for all batch sizes or for single ones.

    ``at_least_steps`` keeps large batch sizes from getting too few steps of an epoch or example budget. A key of
    ``per_batch_size`` is text as long as it is a batch size in tokens (`Experiment.in_examples`).
    """

    amount: float
    unit: Unit
    at_least_steps: int = 1
    per_batch_size: Mapping[int | str, float] = field(default_factory=dict)

    def steps(
        self, batch_size: int, num_train_examples: int | None = None, tokens_per_example: int | None = None
    ) -> int:
        """Return the step budget of a study."""
        amount = self.per_batch_size.get(batch_size, self.amount)
        steps = to_steps(amount, self.unit, batch_size, num_train_examples, tokens_per_example)
        return max(self.at_least_steps, steps)


@dataclass(frozen=True)
class EvaluationPlan:
    """The measured steps of trials, and the examples per split (``"all"`` or a number; 0 leaves it out).

    Either every ``every`` steps or ``every_tokens`` tokens (rounded up to steps), or ``count`` times. After step 0
    nothing is measured before the share ``start`` of the step budget: no measurements are spent where no trial can have
    reached the goal. All trials of a study are measured at the same steps, so that no trial gets more chances than
    another. ``gradient_noise`` names the kinds of gradient noise that are measured besides; True for those that fit the
    optimizer.
    """

    every: int | None = None
    count: int = 100
    spacing: Spacing = Spacing.EVEN
    start: float = 0.0
    examples: Mapping[str, int | str] = field(default_factory=lambda: {"train": 1000, "val": ALL, "test": 0})
    every_tokens: int | None = None
    gradient_noise: bool | tuple[str, ...] = False

    def in_steps(self, batch_size: int, tokens_per_example: int | None) -> "EvaluationPlan":
        """Return the plan of a batch size, without tokens.

        >>> EvaluationPlan(every_tokens=100_000).in_steps(32, tokens_per_example=512).every
        7
        """
        if self.every_tokens is None:
            return self
        steps = to_steps(self.every_tokens, Unit.TOKENS, batch_size, tokens_per_example=tokens_per_example)
        return replace(self, every=steps, every_tokens=None)

    def steps(self, train_steps: int) -> tuple[int, ...]:
        """Return the measured steps in growing order, from 0 to ``train_steps``.

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
        """Return the most measurements of a trial of this budget besides its first and last step, without listing them.

        Raises:
            SpecError: too many.
        """
        if self.every is None:
            count, setting = min(self.count, train_steps), f"count = {self.count:,}"
        else:
            count = -(-(train_steps - round(self.start * train_steps)) // self.every)
            setting = f"every = {self.every:,}"
        if count > MAX_MEASUREMENTS:
            raise SpecError(
                f"A trial must have at most {MAX_MEASUREMENTS:,} measurements. Found evaluation {setting}, which makes "
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
