"""Learning rate schedules by name: their metaparameters with ranges, and their formulas. No jax until they run."""

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.spec.experiment import Options
from batchscale.workloads.declarations import Table
from batchscale.workloads.schedules.declaration import ScheduleDeclaration

SCHEDULES = Table(ScheduleDeclaration, "batchscale.workloads.schedules.builtin", "schedule")

__all__ = ["SCHEDULES", "ScheduleDeclaration", "find_schedule"]


def find_schedule(name: str, options: Options) -> ScheduleDeclaration:
    """A schedule by name, with its options (which stand among the optimizer's) read.

    Raises:
        UnknownNameError: There is no such schedule.
        SpecError: An option is missing, wrong, unknown, or another schedule's.
    """
    found = SCHEDULES.find(name)
    owners = {option: one.name for one in SCHEDULES.all().values() for option in one.options}
    for key in options:
        if key not in owners:
            raise SpecError(f"optimizer has no option '{one_line(key)}'; {suggest_names(key, owners)}")
        if key not in found.options:
            raise SpecError(f"Only the schedule {owners[key]} takes {key}. Found schedule '{name}'.")
    return found if found.read is None else found.read(options)
