"""Protocols without a horizon: what is measured at a step does not depend on the step budget.

``[averaging]``: the learning rate stays constant, and averages of the weights are measured instead of a decay.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchscale.errors import SpecError, one_line
from batchscale.spec.durations import Unit, tokens_unknown

HALF_LIFE = "averaging_half_life"
"""The metaparameter of a recorded trial: the half-life, in steps, of the average that its result comes from."""

MAX_AVERAGES = 16
_SAMPLES_PER_HALF_LIFE = 32


@dataclass(frozen=True)
class Averaging:
    """Exponential averages of the weights, by their half-lives."""

    half_lives: tuple[float, ...]
    unit: Unit = Unit.STEPS

    def __post_init__(self) -> None:
        half_lives = self.half_lives
        if not half_lives or len(half_lives) > MAX_AVERAGES or not all(0 < h < math.inf for h in half_lives):
            raise SpecError(
                f"half_life must be 1 to {MAX_AVERAGES} numbers above 0. Found {one_line(list(half_lives))}; for the "
                "weights without averaging remove [averaging], or give a half-life far below one step."
            )
        if any(later <= earlier for earlier, later in itertools.pairwise(half_lives)):
            raise SpecError(f"half_life must grow from one average to the next. Found {one_line(list(half_lives))}.")

    def steps(
        self, batch_size: int, num_train_examples: int | None = None, tokens_per_example: int | None = None
    ) -> tuple[float, ...]:
        """Return the half-lives in optimizer steps, which need not be whole.

        >>> Averaging((1, 4), Unit.EPOCHS).steps(64, num_train_examples=1000)
        (15.625, 62.5)
        """
        examples: float = 1.0
        if self.unit is Unit.STEPS:
            examples = batch_size
        elif self.unit is Unit.EPOCHS:
            if num_train_examples is None:
                raise SpecError("averaging: a half-life in epochs needs a training set of fixed size; give examples.")
            examples = num_train_examples
        elif self.unit is Unit.TOKENS:
            if tokens_per_example is None:
                raise tokens_unknown(f"averaging.half_life = {self.half_lives[0]:g} tokens")
            examples = 1 / tokens_per_example
        return tuple(half_life * examples / batch_size for half_life in self.half_lives)


def average_interval(half_lives: Sequence[float]) -> int:
    """Return the steps from one update of the averages to the next: a 32nd of the shortest half-life, at least 1.

    An update reads and writes every average once. Weights so close to each other make no difference to a mean.

    >>> average_interval([10.0, 100.0]), average_interval([320.0, 1000.0])
    (1, 10)
    """
    return max(1, int(min(half_lives) / _SAMPLES_PER_HALF_LIFE))


def half_life_of(row: Mapping[str, float], metric: str, half_lives: Sequence[float]) -> float | None:
    """Return the half-life of the average that a measurement shows; None if it shows none of them."""
    if len(half_lives) == 1:
        return half_lives[0]
    values = (row.get(name_average(metric, number)) for number in range(1, len(half_lives) + 1))
    return next((half_life for half_life, value in zip(half_lives, values, strict=True) if value == row[metric]), None)


def is_recorded(name: str, metrics: Sequence[str] | None) -> bool:
    """True if a column belongs to one of these metrics; None: all do."""
    metric = name.partition("/")[2]
    return metrics is None or metric in metrics or metric.rpartition("_average_")[0] in metrics


def name_average(metric: str, number: int) -> str:
    """Return the column of one average's value of a metric.

    >>> name_average("val/loss", 2)
    'val/loss_average_2'
    """
    return f"{metric}_average_{number}"
