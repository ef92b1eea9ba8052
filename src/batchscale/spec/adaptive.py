"""The aim of an adaptive experiment: the batch size that is asked for, how narrow its interval must be, and the budget.

An experiment with ``batch_sizes = "auto"`` or ``trials = "auto"`` is measured in rounds. A `RoundChoice` is what one
round measures and the reason for it; every study stores those that concern it in its ``study.json``.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from batchscale.errors import SpecError

AUTO = "auto"
DEFAULT_FACTOR = 2.0
DECISION_FACTOR = 1.1  # the default for the choice of a configuration
FIRST_TRIALS = 8
MOST_TRIALS = 100
FINISHERS = (2, 4)  # fewest and most of a race whose file names no other: the intervals of points come from these

_Count = Annotated[int, Field(strict=True, ge=1, description="is a whole number of at least 1")]
_Sizes = Annotated[tuple[_Count, ...], Field(min_length=1, description="is a list of batch sizes")]
_Text = Annotated[str, Field(strict=True, description="is text")]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False, description="is a finite number of at least 0")]


class Aim(StrEnum):
    """A batch size that an adaptive experiment measures, or a choice of machines that it decides."""

    CRITICAL = "critical_batch_size"
    OPTIMAL = "optimal_batch_size"
    PERFECT_END = "end_of_perfect_scaling"
    FASTEST = "fastest_batch_size"
    FASTEST_CONFIGURATION = "fastest_configuration"
    CHEAPEST_CONFIGURATION = "cheapest_configuration"

    @property
    def label(self) -> str:
        """The name in sentences."""
        return self.value.replace("_", " ")

    @property
    def is_decision(self) -> bool:
        """True if a configuration is chosen: a machine, a number of hosts and a batch size."""
        return self in (Aim.FASTEST_CONFIGURATION, Aim.CHEAPEST_CONFIGURATION)

    @property
    def default_factor(self) -> float:
        """The factor at which a run ends that names no other."""
        return DECISION_FACTOR if self.is_decision else DEFAULT_FACTOR


class CostUnit(StrEnum):
    """The unit that the cost of a round is counted in: that of the budget, else trial-steps."""

    TRIAL_STEPS = "trial-steps"
    EXAMPLES = "examples"
    SECONDS = "seconds"


@dataclass(frozen=True)
class AdaptivePlan:
    """The aim of an adaptive experiment.

    Rounds follow each other until the interval of ``aim`` is narrower than ``factor`` (its upper end over its lower
    end), or the budget is spent: the most trial-steps, examples or hours of all trials together. Batch sizes lie
    between ``smallest`` and ``largest`` (None: the training set). Every study starts with ``first_trials`` trials and
    never has more than ``most_trials``. ``chooses_sizes`` and ``chooses_trials`` say which of both is "auto";
    ``chooses_finishers`` that the file names no number of finishers.

    A decision ends when no other configuration may be better by more than ``factor``. It needs ``step_times`` (files
    of step times) or ``work`` (a file of the work of a step), and has the prices of ``machines`` (None: shipped ones).
    """

    aim: Aim = Aim.CRITICAL
    factor: float = DEFAULT_FACTOR
    smallest: int = 1
    largest: int | None = None
    first_trials: int = FIRST_TRIALS
    most_trials: int = MOST_TRIALS
    max_trial_steps: int | None = None
    max_examples: int | None = None
    max_hours: float | None = None
    chooses_sizes: bool = True
    chooses_trials: bool = True
    chooses_finishers: bool = True
    machines: Path | None = None
    step_times: tuple[Path, ...] = ()
    work: Path | None = None

    def __post_init__(self) -> None:
        budgets = [name for name in ("max_trial_steps", "max_examples", "max_hours") if getattr(self, name) is not None]
        if len(budgets) > 1:
            raise SpecError(f"give one of max_trial_steps, max_examples and max_hours. Found {' and '.join(budgets)}.")
        if self.largest is not None and self.largest < 4 * self.smallest:
            raise SpecError(
                "'largest' must be at least four times 'smallest': an interval needs three batch sizes, each twice the "
                f"one before. Found {self.smallest:,} and {self.largest:,}."
            )
        if self.first_trials > self.most_trials:
            raise SpecError(
                f"'first_trials' must not exceed 'most_trials'. Found {self.first_trials} and {self.most_trials}."
            )
        files = [name for name in ("machines", "step_times", "work") if getattr(self, name)]
        if files and not self.aim.is_decision:
            aims = f"'{Aim.FASTEST_CONFIGURATION}' or '{Aim.CHEAPEST_CONFIGURATION}'"
            raise SpecError(
                f"'{files[0]}' is for quantity = {aims}. Found '{self.aim}'; change it, or remove the file."
            )
        if self.aim.is_decision and not (self.step_times or self.work):
            raise SpecError(
                f"quantity = '{self.aim}' needs the time of a step on the machines: 'step_times', a file of "
                "'batchscale calibrate', or 'work', a file of 'batchscale calibrate --work'. Found neither."
            )

    def __str__(self) -> str:
        chosen = " and ".join(
            name for name, is_auto in (("batch sizes", self.chooses_sizes), ("trials", self.chooses_trials)) if is_auto
        )
        hours = "" if self.max_hours is None else f", at most {self.max_hours:g} hours of training"
        amount = self.max_trial_steps or self.max_examples
        budget = f", at most {amount:,} {self.unit}" if amount else hours
        return f"the {self.aim.label} within a factor of {self.factor:g}{budget}; {chosen} are chosen by the run"

    def to_json(self) -> dict[str, Any]:
        """Return the keys and values for JSON."""
        values = asdict(self)
        files = {name: None if values[name] is None else str(values[name]) for name in ("machines", "work")}
        return values | files | {"step_times": [str(path) for path in self.step_times]}

    @property
    def unit(self) -> CostUnit:
        """The unit of costs."""
        if self.max_hours is not None:
            return CostUnit.SECONDS
        return CostUnit.TRIAL_STEPS if self.max_examples is None else CostUnit.EXAMPLES

    @property
    def budget(self) -> float | None:
        """The most that all trials may cost, in ``unit``; None: without limit."""
        if self.max_hours is not None:
            return 3600 * self.max_hours
        return self.max_trial_steps if self.max_examples is None else self.max_examples


def finishers_of(trials: int) -> int:
    """Return the finishers of a race between so many trials: a quarter of them, from two to four.

    A race for four finishers of eight trials runs to the step budget wherever fewer than half reach the goal.

    >>> [finishers_of(trials) for trials in (2, 8, 12, 18, 100)]
    [2, 2, 3, 4, 4]
    """
    fewest, most = FINISHERS
    return max(fewest, min(most, trials // 4))


class ChoiceKind(StrEnum):
    """What a round does."""

    START = "start"
    NEW_SIZE = "new_size"
    MORE_TRIALS = "more_trials"
    STOP = "stop"


@dataclass(frozen=True)
class RoundChoice:
    """A round of an adaptive experiment: what is measured, and why.

    Attributes:
        round: Its number, from 1.
        kind: A start, a new batch size, more trials at all sizes, or the end.
        sizes: The batch sizes that are measured; for the end, all that were.
        trials: The trials that each of them has after it.
        reason: The reason, as a sentence.
        low: The lower end of the interval of the aim before the round; None if there is none. Of a decision, the
            smallest batch size of the configurations that may be the best.
        high: The upper end.
        expected_factor: The factor between both ends that is expected after it; None where nothing is expected. Of a
            decision, the factor by which another configuration may then be better.
        expected_cost: The cost that is expected of it, in ``unit``.
        unit: The unit of the cost.
    """

    round: _Count
    kind: ChoiceKind
    sizes: _Sizes
    trials: _Count
    reason: _Text
    low: _Number | None = None
    high: _Number | None = None
    expected_factor: _Number | None = None
    expected_cost: _Number | None = None
    unit: CostUnit = CostUnit.TRIAL_STEPS

    def __str__(self) -> str:
        return f"round {self.round}: {self.reason}"


def list_rounds(choices_of_studies: Iterable[Iterable[RoundChoice]]) -> tuple[RoundChoice, ...]:
    """Return the rounds of an experiment, each once, from the choices that its studies store."""
    rounds = {choice.round: choice for choices in choices_of_studies for choice in choices}
    return tuple(rounds[number] for number in sorted(rounds))
