"""Which metaparameters each learning rate schedule of the paper's appendix C has. No jax here.

The formulas are in ``schedules``, under the same names. Ranges are those of the published example study.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.spec import Options, ParameterConfig, ParameterType
from batchscale.workloads.optimizer_facts import make_range

DECAY_STEPS = "learning_rate_decay_steps"
END_FACTOR = "end_learning_rate_factor"
POWER = "learning_rate_decay_power"
POINT_OPTIONS = ("schedule_steps", "schedule_fractions", "schedule_factors")
"""The optimizer options that give the points of a piecewise linear schedule."""

_RANGES = {END_FACTOR: make_range(END_FACTOR, 1e-4, 0.1), POWER: make_range(POWER, 0.1, 10.0)}

SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "constant": (),
    "linear": (END_FACTOR, DECAY_STEPS),
    "cosine": (END_FACTOR, DECAY_STEPS),
    "exponential_polynomial": (END_FACTOR, DECAY_STEPS, POWER),
    "inverse_exponential_polynomial": (END_FACTOR, DECAY_STEPS, POWER),
    "exponential": (END_FACTOR, DECAY_STEPS),
    "piecewise_linear": (),
}
"""The metaparameters of each schedule beside the initial learning rate."""


@dataclass(frozen=True)
class Points:
    """The points of a piecewise linear schedule: times, and the factors of the learning rate at these times.

    Times are steps, or with ``fractions`` parts of the metaparameter ``learning_rate_decay_steps``.
    """

    times: tuple[float, ...]
    factors: tuple[float, ...]
    fractions: bool

    def __post_init__(self) -> None:
        times, factors = self.times, self.factors
        if len(times) != len(factors) or not times or times[0] != 0 or min(factors) < 0:
            raise SpecError(
                "A piecewise_linear schedule has as many times as factors, the first time is 0 and no factor is "
                f"negative. Found times {one_line(times)} and factors {one_line(factors)}."
            )
        if any(later <= earlier for earlier, later in itertools.pairwise(times)):
            raise SpecError(f"The times of a piecewise_linear schedule must grow. Found {one_line(times)}.")


@dataclass(frozen=True)
class ScheduleFacts:
    """A schedule by name, its metaparameters, and its points where it has them."""

    name: str
    metaparameters: tuple[str, ...]
    points: Points | None = None

    def ranges(self, train_steps: int) -> tuple[ParameterConfig, ...]:
        """The default range of each metaparameter for a budget of ``train_steps`` steps."""
        decay = ParameterConfig(DECAY_STEPS, ParameterType.INTEGER, float(max(1, train_steps // 2)), float(train_steps))
        return tuple(decay if name == DECAY_STEPS else _RANGES[name] for name in self.metaparameters)


def schedule_facts(name: str, options: Options) -> ScheduleFacts:
    """The facts of a schedule by name; ``options`` may hold the points of ``piecewise_linear``.

    Raises:
        UnknownNameError: there is no such schedule.
        SpecError: points are missing, wrong, or given to a schedule that has none.
    """
    if name not in SCHEDULES:
        raise UnknownNameError(f"There is no schedule '{one_line(name)}'; {suggest_names(name, SCHEDULES)}")
    given = [key for key in POINT_OPTIONS if key in options]
    if name != "piecewise_linear":
        if given:
            raise SpecError(f"Only the schedule piecewise_linear takes {given[0]}. Found schedule '{name}'.")
        return ScheduleFacts(name, SCHEDULES[name])
    fractions = "schedule_fractions" in options
    if fractions == ("schedule_steps" in options) or "schedule_factors" not in options:
        raise SpecError(
            "The schedule piecewise_linear needs the optimizer options schedule_factors and one of schedule_steps and "
            f"schedule_fractions. Found {', '.join(given) or 'none of them'}."
        )
    times = _numbers(options, "schedule_fractions" if fractions else "schedule_steps")
    points = Points(times, _numbers(options, "schedule_factors"), fractions)
    return ScheduleFacts(name, (DECAY_STEPS,) if fractions else (), points)


def _numbers(options: Options, key: str) -> tuple[float, ...]:
    values = options[key]
    if not isinstance(values, tuple | list):
        raise SpecError(f"The optimizer option {key} is a list of numbers. Found {one_line(repr(values))}.")
    numbers = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError(f"The optimizer option {key} is a list of numbers. Found {one_line(repr(value))} in it.")
        numbers.append(float(value))
    return tuple(numbers)
