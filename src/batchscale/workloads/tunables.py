"""What can be tuned in a workload: the metaparameters of its optimizer, its schedule, and those of all. No jax here."""

from dataclasses import dataclass

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.spec import Options, ParameterConfig, SearchSpace, WorkloadSpec
from batchscale.workloads.optimizer_facts import NEUTRAL, OptimizerFacts, optimizer_facts
from batchscale.workloads.schedule_facts import POINT_OPTIONS, ScheduleFacts, schedule_facts


@dataclass(frozen=True)
class Tuning:
    """What can be tuned: the metaparameters of optimizer and schedule, and those of every workload.

    ``smoothing`` says whether the loss knows label smoothing; ``extra`` ranges belong to the model.
    """

    optimizer: OptimizerFacts
    schedule: ScheduleFacts
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


def find_tuning(spec: WorkloadSpec, schedule: str, smoothing: bool, extra: tuple[ParameterConfig, ...] = ()) -> Tuning:
    """What can be tuned with the experiment's optimizer and schedule (by default ``schedule``)."""
    _check_optimizer_options(spec.optimizer_options)
    found = schedule_facts(spec.schedule or schedule, spec.optimizer_options)
    return Tuning(optimizer_facts(spec.name.optimizer), found, smoothing, extra)


def _check_optimizer_options(options: Options) -> None:
    for key in options:
        if key not in POINT_OPTIONS:
            raise SpecError(f"optimizer has no option '{one_line(key)}'; {suggest_names(key, POINT_OPTIONS)}")
