"""Plans of records, for those who draw and report them: the goal's curve, the trials' step times, a machines file."""

from collections.abc import Sequence
from pathlib import Path

from batchscale.analysis.curve_analysis import analyze
from batchscale.errors import PlanningError
from batchscale.planning.curve_input import analysis_curve
from batchscale.planning.machines import read_machines
from batchscale.planning.plan import MachinePlan, Wishes, fit_models, make_plan
from batchscale.planning.step_model import StepModel
from batchscale.planning.step_times import StepTime, device_key, read_step_times, records_step_times
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName


def plan_records(
    records: Records, workload: WorkloadName, goal: Goal, machines: Path, step_times: Sequence[Path] = ()
) -> MachinePlan:
    """The plan of a workload on the machines of a file that have a device whose step times are known."""
    times = _step_times(records, workload, step_times)
    timed = {device_key(one.device) for one in times}
    known = [machine for machine in read_machines(machines) if device_key(machine.device) in timed]
    if not known:
        raise PlanningError(
            f"no machine of {machines.name} has a device whose step times are known "
            f"({', '.join(sorted({one.device for one in times})) or 'none are'})"
        )
    return make_plan(analysis_curve(analyze(records, workload, goal)), times, known, Wishes())


def step_models_of_records(
    records: Records, workload: WorkloadName, step_times: Sequence[Path] = ()
) -> tuple[StepModel, ...]:
    """The models of a workload's step times, one per kind of device."""
    return tuple(fit_models(_step_times(records, workload, step_times)).values())


def _step_times(records: Records, workload: WorkloadName, files: Sequence[Path]) -> tuple[StepTime, ...]:
    given = [one for path in files for one in read_step_times(path)]
    own = [one for one in given if one.workload in (None, str(workload))]
    return tuple(own) if own else records_step_times(records, workload)
