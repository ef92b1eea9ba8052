"""What can be tuned in a workload: the metaparameters of its optimizer, its schedule, and those of all. No jax here."""

from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.spec.bounds import declare_bounds
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.space import ParameterConfig, SearchSpace
from batchscale.workloads.optimizers.declaration import OPTIMIZERS, OptimizerDeclaration
from batchscale.workloads.schedules.declaration import ScheduleDeclaration, find_schedule

NEUTRAL: Mapping[str, float] = {"l2_penalty": 0.0, "label_smoothing": 0.0, "gradient_clip_norm": float("inf")}
"""Metaparameters of every workload, with the value at which each does nothing."""


@dataclass(frozen=True)
class Tunables:
    """What can be tuned: the metaparameters of optimizer and schedule, and those of every workload.

    ``smoothing`` says whether the loss knows label smoothing; ``extra`` ranges belong to the model.
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
        """The default search space for a step budget."""
        return SearchSpace((*self.optimizer.ranges, *self.schedule.ranges(train_steps), *self.extra))


def find_tunables(
    spec: WorkloadSpec, schedule: str, smoothing: bool, extra: tuple[ParameterConfig, ...] = ()
) -> Tunables:
    """What can be tuned with the experiment's optimizer and schedule (by default ``schedule``).

    From now on the bounds that the two declare hold wherever a search space is checked or moved.
    """
    chosen = find_schedule(spec.schedule or schedule, spec.optimizer_options)
    optimizer = OPTIMIZERS.find(spec.name.optimizer)
    for name, bounds in {**optimizer.bounds, **chosen.bounds}.items():
        declare_bounds(name, bounds)
    return Tunables(optimizer, chosen, smoothing, extra)
