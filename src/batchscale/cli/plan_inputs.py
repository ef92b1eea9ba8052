"""The inputs of ``batchscale plan``: the curve of a path, step times, machines, and the parsing of its options."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.cli.selection import open_records, print_notice, select_goal, select_workloads
from batchscale.errors import PlanningError, one_line

if TYPE_CHECKING:
    from batchscale.planning.assemble import PlanInputs
    from batchscale.planning.estimate import EstimateInputs
    from batchscale.planning.language_model import LanguageModel
    from batchscale.planning.plan import MachinePlan, PlanRequest, SearchCost
    from batchscale.records.frames import Records
    from batchscale.spec.workload_name import WorkloadName

SECONDS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class PlanOptions:
    """The options of the command."""

    path: Path | None
    goal: str | None = None
    workload: str | None = None
    step_times: tuple[Path, ...] = ()
    machines: Path | None = None
    machine: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    max_hosts: int | None = None
    batch_sizes: str | None = None
    by: tuple[str, ...] = ()
    pool: bool = False
    give_up: float | None = None
    include_search: bool = False
    search_machine: str | None = None
    work: Path | None = None
    model: Path | None = None
    devices: Path | None = None
    overlap: float | None = None


def build_plan(request: PlanOptions, limits: "PlanRequest") -> "MachinePlan":
    """Return the plan of a request; a notice of old prices is printed."""
    from batchscale.planning.assemble import PlanInputs, assemble_plan, read_inputs
    from batchscale.planning.language_model import read_language_model
    from batchscale.planning.machines import read_machines
    from batchscale.planning.step_times import read_step_times

    records, workload = None, None
    model = None if request.model is None else read_language_model(request.model)
    if request.path is None:
        if model is None:
            raise PlanningError(
                "plan needs a CURVE (records, JSON or CSV), or --model FILE with tokens. Found neither."
            )
        inputs = PlanInputs(model.curve())
    elif request.path.suffix.lower() in (".csv", ".json") and request.path.is_file():
        inputs = read_inputs(request.path, request.by, request.give_up)
    else:
        inputs, records, workload = _read_records(request)
    inputs = replace(
        inputs,
        step_times=tuple(time for path in request.step_times for time in read_step_times(path)),
        machines=None if request.machines is None else read_machines(request.machines),
        machine_names=request.machine,
        max_hosts=request.max_hosts,
        batch_sizes=parse_sizes(request.batch_sizes, inputs.curve.tokens_per_example),
        pool=request.pool,
        estimate=_read_estimate(request, model, inputs.curve.workload),
    )
    plan = assemble_plan(inputs, replace(limits, devices=request.device))
    for notice in plan.notices:
        print_notice(notice)
    if not request.include_search:
        return plan
    return replace(plan, search=_search_cost(request, inputs, records, workload))


def _read_estimate(
    request: PlanOptions, model: "LanguageModel | None", workload: str | None
) -> "EstimateInputs | None":
    from batchscale.planning.estimate import EstimateInputs
    from batchscale.planning.roofline import OVERLAP
    from batchscale.planning.work import read_work

    if model is not None and request.work is not None:
        raise PlanningError("--model and --work exclude each other: both give the work of a step. Found both.")
    if request.overlap is not None and not 0 <= request.overlap <= 1:
        raise PlanningError(f"--overlap must be a share from 0 to 1. Found {request.overlap:g}.")
    if model is None and request.work is None:
        if request.devices is not None or request.overlap is not None:
            raise PlanningError("--devices and --overlap are for estimates, which need --work FILE or --model FILE.")
        return None
    work = model.work() if model is not None else read_work(request.work or Path(), workload)
    return EstimateInputs(work, request.devices, OVERLAP if request.overlap is None else request.overlap)


def _read_records(request: PlanOptions) -> "tuple[PlanInputs, Records, WorkloadName]":
    from batchscale.planning.assemble import records_inputs

    records = open_records(request.path or Path())
    names = select_workloads(records, request.workload)
    if len(names) != 1:
        listed = ", ".join(str(name) for name in names[:5])
        raise PlanningError(f"--workload must select one workload. Found {len(names)} ({listed}).")
    goal = select_goal(records, names[0], request.goal)
    return records_inputs(records, names[0], goal, request.give_up), records, names[0]


def _search_cost(
    request: PlanOptions, inputs: "PlanInputs", records: "Records | None", workload: "WorkloadName | None"
) -> "SearchCost":
    """Return the cost of the runs, or of the trials' seconds on a device of the machine that is named."""
    from batchscale.errors import UnknownNameError, suggest_names
    from batchscale.planning.assemble import trial_seconds, usable_machines, usable_step_times
    from batchscale.planning.plan import SearchCost

    runs = inputs.runs
    if runs is not None and runs.have_machines:
        return SearchCost(sum(run.seconds or 0.0 for run in runs.runs), sum(run.cost or 0.0 for run in runs.runs))
    if records is None or workload is None:
        raise PlanningError("--include-search needs records or runs, which have the cost of measuring. Found a curve.")
    times = usable_step_times(inputs.step_times, inputs.recorded_times, str(workload))
    by_name = {machine.name: machine for machine in usable_machines(inputs, times, request.device)}
    if request.search_machine is None:
        raise PlanningError("--include-search needs --search-machine NAME: the machine that trained the trials.")
    if request.search_machine not in by_name:
        near = suggest_names(request.search_machine, by_name)
        raise UnknownNameError(f"--search-machine: no machine is called '{one_line(request.search_machine)}'; {near}")
    seconds = trial_seconds(records, workload)
    machine = by_name[request.search_machine]
    return SearchCost(seconds, seconds / 3600 * machine.price_per_host_hour / machine.devices_per_host)


def parse_duration(text: str, option: str) -> float:
    """Parse seconds from a text such as 90s, 45min, 4h, 1.5d or 4:30 (hours and minutes).

    >>> parse_duration("4:30", "--deadline"), parse_duration("90 min", "--deadline")
    (16200.0, 5400.0)
    """
    clock = re.fullmatch(r"(\d{1,6}):([0-5]\d)", text.strip())
    if clock:
        return float(int(clock[1]) * 3600 + int(clock[2]) * 60)
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*(s|min|m|h|d)", text.strip())
    if not match or float(match[1]) == 0:
        raise PlanningError(f"{option} must be a time such as 90s, 45min, 4h or 4:30. Found {one_line(repr(text))}.")
    return float(match[1]) * SECONDS[match[2]]


def parse_sizes(text: str | None, tokens_per_example: int | None = None) -> tuple[int, ...]:
    """Parse batch sizes from a text such as 64,128,256 or 16k tokens,32k tokens.

    >>> parse_sizes("64,128"), parse_sizes("16k tokens, 32,768 tokens", 512)
    ((64, 128), (32, 64))
    """
    from batchscale.spec.batch_sizes import MAX_BATCH_SIZE
    from batchscale.spec.tokens import names_tokens, split_sizes, to_examples

    if text is None:
        return ()
    if names_tokens(text):
        if tokens_per_example is None:
            raise PlanningError(
                f"--batch-sizes in tokens need a curve that states the tokens of an example. Found "
                f"{one_line(repr(text))} and a curve in examples; give examples."
            )
        texts = split_sizes(text)
        sizes = to_examples(texts, tokens_per_example)
        return tuple(size for part in texts for size in sizes[part])
    numbers = [int(part) if part.isascii() and part.isdigit() and len(part) <= 20 else 0 for part in split_sizes(text)]
    if not all(0 < number <= MAX_BATCH_SIZE for number in numbers):
        raise PlanningError(
            f"--batch-sizes must be whole numbers from 1 to {MAX_BATCH_SIZE:,}, such as 64,128. Found "
            f"{one_line(repr(text))}."
        )
    return tuple(numbers)
