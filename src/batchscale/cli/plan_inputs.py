"""What ``batchscale plan`` reads: the curve from whatever its path is, step times, machines, amounts of time."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from batchscale.errors import PlanningError, one_line

if TYPE_CHECKING:
    from batchscale.planning.curve import Curve
    from batchscale.planning.machines import Machine
    from batchscale.planning.plan import MachinePlan, SearchCost, Wishes
    from batchscale.planning.runs import Runs
    from batchscale.planning.step_times import StepTime
    from batchscale.records.frames import Records
    from batchscale.spec.workload_name import WorkloadName

SECONDS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Request:
    """What the options of the command say."""

    path: Path
    goal: str | None = None
    workload: str | None = None
    step_times: tuple[Path, ...] = ()
    machines: Path | None = None
    machine: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    max_hosts: int | None = None
    batch_sizes: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    pool: bool = False
    give_up: float | None = None
    include_search: bool = False
    search_machine: str | None = None


def build_plan(request: Request, wishes: "Wishes") -> "MachinePlan":
    """The plan of a request."""
    from batchscale.planning.plan import make_plan, plan_from_runs

    source = _read_source(request)
    if source.runs is not None and source.runs.have_machines and _runs_alone(request):
        plan = plan_from_runs(source.runs, replace(wishes, devices=request.device), request.give_up)
        return replace(plan, search=_runs_cost(source.runs) if request.include_search else None)
    curve = source.curve
    if request.batch_sizes:
        from batchscale.planning.curve import add_batch_sizes

        curve = add_batch_sizes(curve, request.batch_sizes)
    times = _step_times(request, source)
    machines = _machines(request, source, times)
    plan = make_plan(curve, times, machines, wishes)
    return replace(plan, search=_search_cost(request, source, machines)) if request.include_search else plan


def _runs_alone(request: Request) -> bool:
    return not (request.machines or request.step_times or request.pool or request.machine)


@dataclass(frozen=True)
class _Source:
    """The curve and what else its file tells."""

    curve: "Curve"
    runs: "Runs | None" = None
    records: "Records | None" = None
    workload: "WorkloadName | None" = None


def _read_source(request: Request) -> _Source:
    from batchscale.planning.curve_input import read_analysis_json, read_curve_csv, with_give_up

    suffix = request.path.suffix.lower()
    if suffix == ".csv" and request.path.is_file():
        from batchscale.planning.csv_rows import read_csv_rows
        from batchscale.planning.runs import is_runs_file
        from batchscale.planning.step_times import COLUMN_ALIASES

        if is_runs_file(read_csv_rows(request.path, "a curve", ("batch_size", "steps"), COLUMN_ALIASES)):
            return _read_runs(request)
        curve = read_curve_csv(request.path)
    elif suffix == ".json" and request.path.is_file():
        curve = read_analysis_json(request.path)
    else:
        return _read_records(request)
    return _Source(curve if request.give_up is None else with_give_up(curve, request.give_up))


def _read_runs(request: Request) -> _Source:
    from batchscale.planning.runs import Runs, give_up_at, read_runs, runs_curve

    runs = read_runs(request.path, request.by)
    judged = runs if request.give_up is None else Runs(give_up_at(runs.runs, request.give_up), runs.unit)
    return _Source(runs_curve(judged), runs)


def _read_records(request: Request) -> _Source:
    from batchscale.analysis.curve_analysis import analyze
    from batchscale.cli.selection import open_records, select_goal, select_workloads
    from batchscale.planning.curve_input import analysis_curve, with_give_up

    records = open_records(request.path)
    names = select_workloads(records, request.workload)
    if len(names) != 1:
        shown = ", ".join(str(name) for name in names[:5])
        raise PlanningError(f"A plan is of one workload. Found {len(names)} ({shown}); choose with --workload.")
    curve = analysis_curve(analyze(records, names[0], select_goal(records, names[0], request.goal)))
    if request.give_up is not None:
        curve = with_give_up(curve, request.give_up)
    return _Source(curve, None, records, names[0])


def _step_times(request: Request, source: _Source) -> "tuple[StepTime, ...]":
    from batchscale.planning.runs import runs_step_times
    from batchscale.planning.step_times import read_step_times, records_step_times

    if request.step_times:
        return tuple(one for path in request.step_times for one in read_step_times(path))
    found: tuple[StepTime, ...] = ()
    if source.runs is not None:
        found = runs_step_times(source.runs)
    elif source.records is not None and source.workload is not None:
        found = records_step_times(source.records, source.workload)
    if not found:
        raise PlanningError(
            "A plan needs step times. Found none with the curve; give --step-times FILE, as 'batchscale calibrate' "
            "writes it."
        )
    return found


def _machines(request: Request, source: _Source, times: "tuple[StepTime, ...]") -> "tuple[Machine, ...]":
    """The machines of the file; else what the runs paid; else the shipped prices of the devices that were timed."""
    from batchscale.planning.machines import choose_machines, read_machines
    from batchscale.planning.price_list import check_max_hosts, read_price_list
    from batchscale.planning.runs import runs_machines
    from batchscale.planning.step_times import device_key

    check_max_hosts(request.max_hosts)
    if request.machines is not None:
        known = read_machines(request.machines)
    elif source.runs is not None and source.runs.have_machines:
        known = runs_machines(source.runs)
    else:
        timed = {device_key(one.device) for one in times}
        known = tuple(machine for machine in read_price_list() if device_key(machine.device) in timed)
        if not known:
            names = ", ".join(sorted({one.device for one in times}))
            raise PlanningError(
                f"The shipped list has no price of {one_line(names)}; give --machines FILE with one. No price is "
                "guessed."
            )
    chosen = choose_machines(known, request.machine, request.device)
    if source.runs is None or request.machines is not None:
        _say_if_stale(chosen)
    if request.max_hosts is None:
        return chosen
    return tuple(replace(machine, max_hosts=request.max_hosts) for machine in chosen)


def _say_if_stale(machines: "tuple[Machine, ...]") -> None:
    import datetime

    from batchscale.planning.price_list import stale_sentence

    stale = stale_sentence(machines, datetime.datetime.now(datetime.UTC).date())
    if stale is not None:
        typer.echo(f"Notice: {stale}", err=True)


def _runs_cost(runs: "Runs") -> "SearchCost":
    from batchscale.planning.plan import SearchCost

    return SearchCost(sum(run.seconds or 0.0 for run in runs.runs), sum(run.cost or 0.0 for run in runs.runs))


def _search_cost(request: Request, source: _Source, machines: "tuple[Machine, ...]") -> "SearchCost":
    """What the runs cost, or the trials' seconds on a device of the machine that is named."""
    from batchscale.errors import UnknownNameError, suggest_names
    from batchscale.planning.plan import SearchCost
    from batchscale.planning.search_cost import trial_seconds

    if source.runs is not None and source.runs.have_machines:
        return _runs_cost(source.runs)
    if source.records is None or source.workload is None:
        raise PlanningError(
            "--include-search needs records or runs, which say what measuring took. Found a bare curve."
        )
    by_name = {machine.name: machine for machine in machines}
    if request.search_machine is None:
        raise PlanningError("--include-search needs --search-machine NAME: on which machine the trials were trained.")
    if request.search_machine not in by_name:
        near = suggest_names(request.search_machine, by_name)
        raise UnknownNameError(f"--search-machine: no machine is called '{one_line(request.search_machine)}'; {near}")
    seconds = trial_seconds(source.records, source.workload)
    machine = by_name[request.search_machine]
    return SearchCost(seconds, seconds / 3600 * machine.price_per_host_hour / machine.devices_per_host)


def parse_duration(text: str, option: str) -> float:
    """Seconds from text such as 90s, 45min, 4h, 1.5d or 4:30 (hours and minutes).

    >>> parse_duration("4:30", "--deadline"), parse_duration("90 min", "--deadline")
    (16200.0, 5400.0)
    """
    clock = re.fullmatch(r"(\d{1,6}):([0-5]\d)", text.strip())
    if clock:
        return float(int(clock[1]) * 3600 + int(clock[2]) * 60)
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*(s|min|m|h|d)", text.strip())
    if not match or float(match[1]) == 0:
        raise PlanningError(f"{option} is a time such as 90s, 45min, 4h or 4:30. Found {one_line(repr(text))}.")
    return float(match[1]) * SECONDS[match[2]]


def parse_sizes(text: str | None) -> tuple[int, ...]:
    """Batch sizes from text such as 64,128,256."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 2**53 for part in parts):
        raise PlanningError(f"--batch-sizes are whole numbers such as 64,128. Found {one_line(repr(text))}.")
    return tuple(int(part) for part in parts)
