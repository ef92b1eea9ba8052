"""The metaparameters of a workload: those of its optimizer, of its schedule, and those of every workload. No jax."""

from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.space import ParameterConfig, SearchSpace, declare_bounds
from batchscale.workloads.optimizers.declaration import OPTIMIZERS, OptimizerDeclaration
from batchscale.workloads.schedules.declaration import ScheduleDeclaration, find_schedule

NEUTRAL: Mapping[str, float] = {"l2_penalty": 0.0, "label_smoothing": 0.0, "gradient_clip_norm": float("inf")}
"""Metaparameters of every workload, with the value at which each does nothing."""


@dataclass(frozen=True)
class Tunables:
    """The metaparameters of an optimizer and a schedule, and those of every workload.

    With ``smoothing`` the loss takes label smoothing; ``extra`` ranges belong to the model.
    """

    optimizer: OptimizerDeclaration
    schedule: ScheduleDeclaration
    smoothing: bool = True
    extra: tuple[ParameterConfig, ...] = ()

    @property
    def defaults(self) -> dict[str, float | None]:
        """Every metaparameter with its default."""
        neutral = {name: value for name, value in NEUTRAL.items() if self.smoothing or name != "label_smoothing"}
        return {**self.optimizer.defaults, **dict.fromkeys(self.schedule.metaparameters), **neutral}

    def space(self, train_steps: int) -> SearchSpace:
        """Return the default search space for a step budget."""
        return SearchSpace((*self.optimizer.ranges, *self.schedule.ranges(train_steps), *self.extra))


def find_tunables(
    spec: WorkloadSpec, schedule: str, smoothing: bool, extra: tuple[ParameterConfig, ...] = ()
) -> Tunables:
    """Return the metaparameters of the experiment's optimizer and schedule (by default ``schedule``).

    The bounds that the two declare hold from now on wherever a search space is checked or moved.
    """
    schedule_declaration = find_schedule(spec.schedule or schedule, spec.optimizer_options)
    optimizer = OPTIMIZERS.find(spec.name.optimizer)
    for name, bounds in {**optimizer.bounds, **schedule_declaration.bounds}.items():
        declare_bounds(name, bounds)
    return Tunables(optimizer, schedule_declaration, smoothing, extra)
