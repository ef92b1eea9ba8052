"""One set of rules for every plan: which curve, step times and machines are used, wherever they come from.

The command line, the report, figures and the web interface read their inputs differently and all call
``assemble_plan``. The rules, in the order of docs/planning.md:

- Runs with device, seconds and cost make a plan alone, unless step times, machines or one pooled curve are requested.
- Step times that are passed win over those recorded with the curve. Rows of other workloads are not used; if no others
  remain, the plan is refused.
- Machines that are passed win over what the runs paid; without both, the shipped prices of the timed devices are used.
- If the work of a step is known, step times that were neither measured nor can be modelled are estimated.
- A machine without step times is left out and counted. Prices older than 90 days are reported in the plan's notices.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from batchscale.analysis.curve_analysis import analyze
from batchscale.errors import PlanningError, one_line
from batchscale.planning.accelerators import read_accelerators
from batchscale.planning.csv_rows import read_csv_rows
from batchscale.planning.curve import PlanCurve, add_batch_sizes
from batchscale.planning.devices import parse_device
from batchscale.planning.estimate import EstimateInputs, StepEstimate, make_estimates
from batchscale.planning.machines import (
    Machine,
    check_names,
    choose_machines,
    read_machines,
    read_price_list,
    stale_sentence,
)
from batchscale.planning.plan import MachinePlan, PlanRequest, fit_models, make_plan, plan_from_runs
from batchscale.planning.read_curve import analysis_curve, read_analysis_json, read_curve_csv, with_give_up
from batchscale.planning.runs import (
    Runs,
    give_up_at,
    is_runs_file,
    read_runs,
    runs_curve,
    runs_machines,
    runs_step_times,
)
from batchscale.planning.step_model import StepModel
from batchscale.planning.step_times import (
    COLUMN_ALIASES,
    StepTime,
    check_workload,
    read_step_times,
    records_step_times,
)
from batchscale.planning.work import read_work
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName


@dataclass(frozen=True)
class PlanInputs:
    """A curve, and the step times and machines to plan it with.

    Attributes:
        curve: Steps to the goal by batch size.
        recorded_times: Step times that came with the curve: those of its trials or runs.
        runs: The runs that the curve was made from, if any.
        step_times: Step times passed beside the curve; empty: the recorded ones.
        machines: Machines with prices; None: what the runs paid, or the shipped prices.
        machine_names: Use only machines of these names; empty: all.
        max_hosts: The most hosts of every machine; None: what each machine has.
        batch_sizes: Further batch sizes between those of the curve.
        give_up: The step at which runs are given up; the curve already counts it.
        pool: Make one curve of all runs, instead of planning each configuration by its runs.
        has_own_script: True if records were measured with a training script of the user.
        estimate: The work of a step, for estimates of step times that were not measured.
    """

    curve: PlanCurve
    recorded_times: tuple[StepTime, ...] = ()
    runs: Runs | None = None
    step_times: tuple[StepTime, ...] = ()
    machines: tuple[Machine, ...] | None = None
    machine_names: tuple[str, ...] = ()
    max_hosts: int | None = None
    batch_sizes: tuple[int, ...] = ()
    give_up: float | None = None
    pool: bool = False
    has_own_script: bool = False
    estimate: EstimateInputs | None = None

    @property
    def are_runs_alone(self) -> bool:
        """True if each configuration is planned by its runs, without a curve."""
        beside = self.machines is not None or self.step_times or self.pool or self.machine_names or self.estimate
        return self.runs is not None and self.runs.have_machines and not beside


def assemble_plan(
    inputs: PlanInputs, request: PlanRequest | None = None, today: datetime.date | None = None
) -> MachinePlan:
    """Return the plan of the inputs.

    Args:
        inputs: Curve, step times and machines.
        request: Budget, deadline, evaluations and devices.
        today: The day by which prices are old; None: this one.

    Raises:
        PlanningError: there are no step times, no prices, or nothing can be used; with what to do.
    """
    limits = request or PlanRequest()
    if inputs.runs is not None and inputs.are_runs_alone:
        return plan_from_runs(inputs.runs, limits, inputs.give_up)
    curve = inputs.curve
    if inputs.batch_sizes:
        curve = add_batch_sizes(curve, inputs.batch_sizes)
    times = usable_step_times(inputs.step_times, inputs.recorded_times, curve.workload)
    if not times and inputs.estimate is None:
        raise PlanningError(
            "A plan needs step times, or the work of a step to estimate them. Found neither with the curve; give "
            "step times, as 'batchscale calibrate' writes them (--step-times FILE), or the work of a step, as "
            "'batchscale calibrate --work' writes it (--work FILE, or --model FILE)."
        )
    machines = usable_machines(inputs, times, limits.devices)
    estimates, reasons = _estimates(inputs.estimate, curve, machines, times)
    if limits.devices:
        requested = [parse_device(device) for device in limits.devices]
        times = (
            tuple(time for time in times if any(parse_device(time.device).matches(device) for device in requested))
            or times
        )
    plan = make_plan(curve, times, machines, replace(limits, devices=()), estimates=estimates)
    plan = replace(plan, left_out=(*plan.left_out, *reasons))
    paid_by_runs = inputs.machines is None and inputs.runs is not None and inputs.runs.have_machines
    stale = None if paid_by_runs else stale_sentence(machines, today or datetime.datetime.now(datetime.UTC).date())
    notices = plan.notices if stale is None else (*plan.notices, stale)
    return replace(plan, notices=notices, has_own_script=inputs.has_own_script)


def _estimates(
    inputs: EstimateInputs | None, curve: PlanCurve, machines: Sequence[Machine], times: Sequence[StepTime]
) -> tuple[dict[str, StepEstimate], tuple[str, ...]]:
    """Return the estimates of machines, and why some have none.

    Raises:
        PlanningError: nothing was timed, and no machine can be estimated.
    """
    if inputs is None:
        return {}, ()
    largest = max(point.batch_size for point in curve.points)
    estimates, reasons = make_estimates(inputs, machines, times, largest)
    if not estimates and not times:
        raise PlanningError(f"No step time can be estimated: {'; '.join(reasons[:5])}.")
    return estimates, reasons


def usable_step_times(
    passed: Sequence[StepTime], recorded: Sequence[StepTime], workload: str | None
) -> tuple[StepTime, ...]:
    """Return the passed step times of a workload, or the recorded ones if none were passed.

    Raises:
        PlanningError: all of them are of other workloads, or of several and the curve's is not known.
    """
    times = passed or recorded
    same = tuple(time for time in times if workload is None or time.workload in (None, workload))
    check_workload(same or times, workload)
    return same


def usable_machines(inputs: PlanInputs, times: Sequence[StepTime], devices: Sequence[str] = ()) -> tuple[Machine, ...]:
    """Return the machines to plan with: those passed, those the runs used, or those of the shipped list."""
    if inputs.max_hosts is not None and inputs.max_hosts < 1:
        raise PlanningError(f"--max-hosts must be at least 1. Found {inputs.max_hosts}.")
    if inputs.machines is not None:
        check_names(inputs.machines, "The machines")
        machines = inputs.machines
    elif inputs.runs is not None and inputs.runs.have_machines:
        machines = runs_machines(inputs.runs)
    else:
        machines = shipped_machines(times, inputs.estimate)
    selected = choose_machines(machines, inputs.machine_names, devices)
    if inputs.max_hosts is None:
        return selected
    return tuple(replace(machine, max_hosts=inputs.max_hosts) for machine in selected)


def shipped_machines(times: Sequence[StepTime], estimate: EstimateInputs | None = None) -> tuple[Machine, ...]:
    """Return the machines of the shipped price list whose devices were timed or can be estimated.

    Raises:
        PlanningError: the list has none of these devices.
    """
    timed = sorted({time.device for time in times})
    if estimate is not None:
        timed += [row.device for row in read_accelerators(estimate.devices) if row.peak(estimate.work.precision)]
    machines = tuple(
        machine
        for machine in read_price_list()
        if any(parse_device(machine.device).matches(parse_device(device)) for device in timed)
    )
    if not machines:
        raise PlanningError(
            f"The shipped list has no price of {one_line(', '.join(timed))}; give a price "
            "of your own (--machines FILE). No price is guessed."
        )
    return machines


def read_inputs(path: Path, by: Sequence[str] = (), give_up: float | None = None) -> PlanInputs:
    """Return the curve of a CSV file of runs or points, or of the JSON of an analysis.

    Args:
        path: The file.
        by: Further columns that separate recipes of runs.
        give_up: The step at which runs are given up.
    """
    if path.suffix.lower() == ".csv" and is_runs_file(
        read_csv_rows(path, "a curve", ("batch_size", "steps"), COLUMN_ALIASES)
    ):
        runs = read_runs(path, by)
        judged = runs if give_up is None else Runs(give_up_at(runs.runs, give_up), runs.unit)
        return PlanInputs(runs_curve(judged), runs_step_times(runs), runs, give_up=give_up)
    curve = read_curve_csv(path) if path.suffix.lower() == ".csv" else read_analysis_json(path)
    return PlanInputs(curve if give_up is None else with_give_up(curve, give_up), give_up=give_up)


def records_inputs(records: Records, workload: WorkloadName, goal: Goal, give_up: float | None = None) -> PlanInputs:
    """Return the curve of records to a goal, with the step times of their trials."""
    curve = analysis_curve(analyze(records, workload, goal))
    times = records_step_times(records, workload)
    return PlanInputs(
        curve if give_up is None else with_give_up(curve, give_up),
        times,
        give_up=give_up,
        has_own_script=have_own_script(records, workload),
    )


def have_own_script(records: Records, workload: WorkloadName) -> bool:
    """True if an experiment file of the studies has a table [trainer]."""
    texts = records.workload(workload).studies[METADATA].struct.field("experiment").drop_nulls().unique()
    return any(re.search(r"^\s*(\[\s*trainer\b|trainer\s*[.=])", text, re.MULTILINE) for text in texts)


def plan_records(
    records: Records,
    workload: WorkloadName,
    goal: Goal,
    machines: Path | None,
    step_times: Sequence[Path] = (),
    work: Path | None = None,
) -> MachinePlan:
    """Return the plan of a workload of records on the machines of a file.

    Args:
        records: The records.
        workload: Whose curve is planned.
        goal: The goal of the curve.
        machines: A machines.toml; None: the shipped prices.
        step_times: Files of step times; without them those of the trials are used.
        work: A file of the work of a step, to estimate step times that were not measured.
    """
    inputs = replace(
        records_inputs(records, workload, goal),
        step_times=_read_all(step_times),
        machines=None if machines is None else read_machines(machines),
        estimate=None if work is None else EstimateInputs(read_work(work, str(workload))),
    )
    return assemble_plan(inputs)


def step_models_of_records(
    records: Records, workload: WorkloadName, step_times: Sequence[Path] = ()
) -> tuple[StepModel, ...]:
    """Return the models of a workload's step times, one per kind of device."""
    times = usable_step_times(_read_all(step_times), records_step_times(records, workload), str(workload))
    return tuple(fit_models(times).values())


def _read_all(files: Sequence[Path]) -> tuple[StepTime, ...]:
    return tuple(time for path in files for time in read_step_times(path))


def trial_seconds(records: Records, workload: WorkloadName) -> float:
    """Return the seconds that all trials of a workload trained, whatever their outcome.

    Raises:
        PlanningError: the records have no times.
    """
    seconds = records.workload(workload).trials[METADATA].struct.field("total_s")
    total = float(seconds.filter(seconds > 0).sum())
    if total <= 0:
        raise PlanningError(f"The records of {workload} have no training times of trials; leave --include-search out.")
    return total
