"""What a learning rate schedule declares: its metaparameters, and the learning rate at every step. Imports no jax.

Ranges are those of the published example study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from batchscale.spec.bounds import Bounds
from batchscale.spec.experiment import Options
from batchscale.spec.space import ParameterConfig, ParameterType
from batchscale.workloads.optimizers.declaration import make_range

if TYPE_CHECKING:
    from batchscale.workloads.workload import Schedule

DECAY_STEPS = "learning_rate_decay_steps"
END_FACTOR = "end_learning_rate_factor"
POWER = "learning_rate_decay_power"

RangeOf = Callable[[int], ParameterConfig]
"""The default range of a metaparameter for a budget of so many steps."""


@dataclass(frozen=True)
class ScheduleDeclaration:
    """A schedule by name.

    ``metaparameters`` are those beside the initial learning rate, each with its default range. ``rate`` gives the
    learning rate at a step (0 for the first), inside the compiled program; it imports jax when called. A schedule with
    ``options`` has ``read``, which gives the declaration for the options of an experiment. ``bounds`` says what
    metaparameters that no other schedule has may be at all.
    """

    name: str
    metaparameters: Mapping[str, RangeOf]
    rate: Schedule
    options: tuple[str, ...] = ()
    read: Callable[[Options], ScheduleDeclaration] | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def ranges(self, train_steps: int) -> tuple[ParameterConfig, ...]:
        """The default range of each metaparameter for a budget of ``train_steps`` steps."""
        return tuple(range_of(train_steps) for range_of in self.metaparameters.values())


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
