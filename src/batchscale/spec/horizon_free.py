"""Protocols without a horizon: what is measured at a step does not depend on the step budget.

``[averaging]``: the learning rate stays constant, and averages of the weights are measured instead of a decay.
``[branches]``: the learning rate stays constant on a trunk; each measurement is the end of a branch that anneals.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchscale.errors import SpecError, one_line
from batchscale.spec.durations import MAX_STEPS, EvaluationPlan, Spacing, Unit, tokens_unknown
from batchscale.spec.gradient_noise import ALL_NOISE_COLUMNS

HALF_LIFE = "averaging_half_life"
"""The metaparameter of a recorded trial: the half-life, in steps, of the average that its result comes from."""

MAX_AVERAGES = 16
UPDATES_PER_HALF_LIFE = 32


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

    def __str__(self) -> str:
        half_lives = ", ".join(f"{half_life:g}" for half_life in self.half_lives)
        return f"averages of the weights, with half-lives of {half_lives} {self.unit}"

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
        steps = tuple(half_life * examples / batch_size for half_life in self.half_lives)
        if steps[-1] > MAX_STEPS:
            raise SpecError(f"averaging: a half-life must be at most {MAX_STEPS:,} steps. Found {steps[-1]:g}.")
        return steps


class Decay(StrEnum):
    """The fall of the learning rate on a branch: straight, by half a cosine, or with the root of the steps."""

    LINEAR = "linear"
    COSINE = "cosine"
    SQRT = "sqrt"


@dataclass(frozen=True)
class Branches:
    """Branches that anneal the learning rate to ``end_factor`` times itself.

    The branch that ends at step T leaves the trunk ``decay_steps`` before it, or else the share ``decay`` of T.
    """

    decay: float = 0.2
    decay_steps: int | None = None
    shape: Decay = Decay.LINEAR
    end_factor: float = 0.0

    def __str__(self) -> str:
        part = f"{self.decay:.4g} of its steps" if self.decay_steps is None else f"{self.decay_steps:,} steps"
        return f"branches, of which each anneals over the last {part} ({self.shape})"

    def keys(self) -> dict[str, float | str]:
        """Return the keys of the table that describes them."""
        decay = {"decay": self.decay} if self.decay_steps is None else {"decay_steps": self.decay_steps}
        return {**decay, "shape": self.shape.value, "end_factor": self.end_factor}

    def start(self, end: int) -> int:
        """Return the step of the trunk from which the branch that ends at this step leaves.

        >>> Branches(decay=0.2).start(100), Branches(decay_steps=30).start(100)
        (80, 70)
        """
        return max(0, end - (self.decay_steps or max(1, round(self.decay * end))))

    def pairs(self, evaluation_steps: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return where each measured branch leaves the trunk and where it ends."""
        return tuple((self.start(end), end) for end in evaluation_steps if end)

    def check(self, evaluation_steps: Sequence[int], metaparameters: Iterable[str]) -> None:
        """Raise SpecError if a branch is shorter than its decay, or the trunk decays by itself."""
        first = next(end for end in evaluation_steps if end)
        if self.decay_steps is not None and self.decay_steps > first:
            raise SpecError(
                f"branches.decay_steps must not exceed the steps of the first branch. Found {self.decay_steps:,} steps "
                f"for a branch that ends at step {first:,}. Lower it, give 'decay' as a share, or measure later with "
                "evaluation.start."
            )
        if "learning_rate_decay_steps" in metaparameters:
            raise SpecError(
                "branches: the learning rate of the trunk must not decay by itself. Found a schedule with "
                'learning_rate_decay_steps; set workload.schedule = "constant" or "warmup".'
            )

    def trained_steps(self, evaluation_steps: Sequence[int]) -> int:
        """Return the steps of a trial with all its branches: those of the trunk, and of each branch its own."""
        pairs = self.pairs(evaluation_steps)
        return pairs[-1][0] + sum(end - start for start, end in pairs)


BRANCH_EVALUATION = EvaluationPlan(count=10, spacing=Spacing.LOG, start=0.1)
"""The branches of an experiment that does not say how many: eleven from a tenth of the budget on, each 26 % longer."""


def average_interval(half_lives: Sequence[float]) -> int:
    """Return the most steps between two updates of the averages: a power of two, a 32nd of the shortest half-life.

    An update reads and writes every average once. Weights so close to each other make no difference to a mean.

    >>> average_interval([10.0, 100.0]), average_interval([320.0, 1000.0])
    (1, 8)
    """
    return 1 << max(0, int(min(half_lives) / UPDATES_PER_HALF_LIFE).bit_length() - 1)


def half_life_of(row: Mapping[str, float], metric: str, half_lives: Sequence[float]) -> float | None:
    """Return the half-life of the average that a measurement shows; None if it shows none of them."""
    if len(half_lives) == 1:
        return half_lives[0]
    values = (row.get(name_average(metric, number)) for number in range(1, len(half_lives) + 1))
    return next((half_life for half_life, value in zip(half_lives, values, strict=True) if value == row[metric]), None)


def is_recorded(name: str, metrics: Sequence[str] | None) -> bool:
    """True if a column belongs to one of these metrics; None: all do. The noise is measured only where it is wanted."""
    metric = name.partition("/")[2]
    is_metric = metrics is None or metric in metrics or metric.rpartition("_average_")[0] in metrics
    return is_metric or name in ALL_NOISE_COLUMNS


def name_average(metric: str, number: int) -> str:
    """Return the column of one average's value of a metric.

    >>> name_average("val/loss", 2)
    'val/loss_average_2'
    """
    return f"{metric}_average_{number}"
