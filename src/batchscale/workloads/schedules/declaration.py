"""Declarations of learning rate schedules, and the table of all by name. Imports no jax until they run.

Ranges are those of the published example study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.spec.experiment import Options
from batchscale.spec.space import Bounds, ParameterConfig, ParameterType
from batchscale.workloads.declarations import Table
from batchscale.workloads.optimizers.declaration import make_range

if TYPE_CHECKING:
    from batchscale.workloads.workload import Schedule

DECAY_STEPS = "learning_rate_decay_steps"
END_FACTOR = "end_learning_rate_factor"
POWER = "learning_rate_decay_power"

RangeOf = Callable[[int], ParameterConfig]
"""Returns the default range of a metaparameter for a step budget."""


@dataclass(frozen=True)
class ScheduleDeclaration:
    """A schedule by name.

    ``metaparameters`` are those beside the initial learning rate, each with its default range. ``rate`` returns
    the learning rate at a step (0 for the first), inside the compiled program; it imports jax when called. A schedule
    with ``options`` has ``read``, which returns the declaration for the options of an experiment. ``bounds`` limits
    metaparameters that only this schedule has.
    """

    name: str
    metaparameters: Mapping[str, RangeOf]
    rate: Schedule
    options: tuple[str, ...] = ()
    read: Callable[[Options], ScheduleDeclaration] | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def ranges(self, train_steps: int) -> tuple[ParameterConfig, ...]:
        """Return the default range of each metaparameter for a budget of ``train_steps`` steps."""
        return tuple(range_of(train_steps) for range_of in self.metaparameters.values())


SCHEDULES = Table(ScheduleDeclaration, "batchscale.workloads.schedules.builtin", "schedule")


def find_schedule(name: str, options: Options) -> ScheduleDeclaration:
    """Return a schedule by name, with its options (which are among the optimizer's) parsed.

    Raises:
        UnknownNameError: There is no such schedule.
        SpecError: An option is missing, wrong, unknown, or another schedule's.
    """
    schedule = SCHEDULES.find(name)
    owners = {option: other.name for other in SCHEDULES.all().values() for option in other.options}
    for key in options:
        if key not in owners:
            raise SpecError(f"optimizer has no option '{one_line(key)}'; {suggest_names(key, owners)}")
        if key not in schedule.options:
            raise SpecError(f"Only the schedule {owners[key]} takes {key}. Found schedule '{name}'.")
    return schedule if schedule.read is None else schedule.read(options)


def decay_steps_range(train_steps: int) -> ParameterConfig:
    """Decay over half to all of the training."""
    return ParameterConfig(DECAY_STEPS, ParameterType.INTEGER, float(max(1, train_steps // 2)), float(train_steps))


def end_factor_range(train_steps: int) -> ParameterConfig:
    """Decay to a tenth or less of the initial learning rate."""
    del train_steps
    return make_range(END_FACTOR, 1e-4, 0.1)


def power_range(train_steps: int) -> ParameterConfig:
    """Decay by a power around 1."""
    del train_steps
    return make_range(POWER, 0.1, 10.0)
