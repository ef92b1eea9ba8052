"""Training runs from a CSV file, one row each, and the curve, step times and prices that they give.

A recipe is a batch size, a choice of metaparameters and the step at which a run is given up. Runs of a recipe on one
configuration are planned as measured; runs of all machines together make a curve.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from batchscale.errors import PlanningError, one_line, suggest_names
from batchscale.formatting import count_text
from batchscale.planning.csv_rows import CsvFile, CsvRow, read_csv_rows
from batchscale.planning.curve import CurvePoint, PlanCurve, mean_interval
from batchscale.planning.machines import Machine
from batchscale.planning.step_times import COLUMN_ALIASES, StepTime

METAPARAMETERS = ("learning_rate", "momentum", "weight_decay", "label_smoothing", "optimizer", "schedule")
"""Columns that separate recipes, if a file has them; others can be named."""

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class FinishedRun:
    """One training run: its steps, and its machines if the file has them.

    ``seconds`` and ``cost`` are of the whole run, including start-up and evaluations.
    """

    batch_size: int
    steps: float
    reached: bool
    give_up: float | None = None
    metaparameters: str = ""
    device: str | None = None
    hosts: int = 1
    devices_per_host: int = 1
    seconds: float | None = None
    cost: float | None = None

    @property
    def recipe(self) -> tuple[int, str, float]:
        """Return batch size, metaparameters and the step to give up at (0: none)."""
        return self.batch_size, self.metaparameters, self.give_up or 0.0

    @property
    def configuration(self) -> tuple[str, int, int]:
        """Return device, hosts and devices per host."""
        return self.device or "", self.hosts, self.devices_per_host


@dataclass(frozen=True)
class Runs:
    """The runs of a file; ``unit`` is that of their costs."""

    runs: tuple[FinishedRun, ...]
    unit: str | None = None

    @property
    def have_machines(self) -> bool:
        """True if every run has device, seconds and cost, so that runs alone make a plan."""
        return all(run.device and run.seconds is not None and run.cost is not None for run in self.runs)


def read_runs(path: Path, by: Sequence[str] = ()) -> Runs:
    """Return the runs of a CSV file.

    Columns batch_size and steps, and any of: reached, give_up, device, hosts, devices_per_host, seconds,
    step_time_s, a cost (``cost_usd``, ``cost_eur``, …, or ``ml_units``) and metaparameters. An empty cell of steps
    is a run that did not reach the goal and went on to give_up.

    Args:
        path: The file.
        by: Further columns that separate recipes.
    """
    file = read_csv_rows(path, "a table of runs", ("batch_size", "steps"), COLUMN_ALIASES)
    for name in by:
        if name not in file.columns:
            raise PlanningError(
                f"{file.where}: no column is called '{one_line(name)}'; {suggest_names(name, file.columns)}"
            )
    cost, unit = _cost_column(file)
    names = [name for name in file.columns if name in METAPARAMETERS or name in by]
    return Runs(tuple(_run(row, names, cost) for row in file.rows), unit)


def is_runs_file(file: CsvFile) -> bool:
    """True if a file has a row per run rather than per batch size."""
    sizes = [row.text("batch_size") for row in file.rows]
    return "reached" in file.columns or len(set(sizes)) < len(sizes)


def _cost_column(file: CsvFile) -> tuple[str | None, str | None]:
    columns = [name for name in file.columns if name == "ml_units" or name.startswith("cost_")]
    if len(columns) > 1:
        raise PlanningError(f"{file.where}: costs must be in one unit. Found the columns {', '.join(columns)}.")
    if not columns:
        return None, None
    return columns[0], "ML units" if columns[0] == "ml_units" else columns[0].removeprefix("cost_").upper()


def _run(row: CsvRow, names: Sequence[str], cost: str | None) -> FinishedRun:
    steps, give_up = row.number("steps"), row.number("give_up")
    reached = row.flag("reached")
    if reached is None:
        reached = steps is not None
    far = steps if steps is not None else give_up
    if far is None:
        raise PlanningError(
            f"{row.place}: a run that did not reach the goal needs its steps or give_up. Found neither."
        )
    seconds, step_time = row.number("seconds"), row.number("step_time_s")
    if seconds is None and step_time is not None:
        seconds = step_time * far
    return FinishedRun(
        batch_size=row.required("batch_size"),
        steps=far,
        reached=reached,
        give_up=give_up,
        metaparameters=", ".join(f"{name} {one_line(row.text(name), 40)}" for name in names if row.text(name)),
        device=one_line(row.text("device")) or None,
        hosts=row.whole("hosts") or 1,
        devices_per_host=row.whole("devices_per_host") or 1,
        seconds=seconds,
        cost=row.number(cost) if cost else None,
    )


def give_up_at(runs: Iterable[FinishedRun], steps: float) -> tuple[FinishedRun, ...]:
    """Return the runs as if each had been given up at this step.

    A run that ended earlier without reaching the goal has no known outcome, and is left out.
    """
    ended = []
    for run in runs:
        if run.steps < steps and not run.reached:
            continue
        share = min(1.0, steps / run.steps)
        ended.append(
            replace(
                run,
                steps=min(run.steps, steps),
                reached=run.reached and run.steps <= steps,
                give_up=steps,
                seconds=None if run.seconds is None else run.seconds * share,
                cost=None if run.cost is None else run.cost * share,
            )
        )
    return tuple(ended)


def grouped(runs: Iterable[FinishedRun], key: Callable[[FinishedRun], _Key]) -> dict[_Key, list[FinishedRun]]:
    """Return runs by key, in the order of their first runs."""
    groups: dict[_Key, list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def recipe_point(runs: Sequence[FinishedRun]) -> CurvePoint | None:
    """Return the point of a curve from runs of one recipe; None if none of them reached the goal."""
    reached = [run.steps for run in runs if run.reached]
    if not reached:
        return None
    mean, low, high = mean_interval(reached)
    failed = [run.steps for run in runs if not run.reached]
    give_up = runs[0].give_up or (sum(failed) / len(failed) if failed else None)
    return CurvePoint(runs[0].batch_size, mean, low, high, len(runs), len(reached), give_up, runs[0].metaparameters)


def runs_curve(runs: Runs, workload: str | None = None) -> PlanCurve:
    """Return the curve of the runs of all machines together, a point per recipe."""
    points, unreached = [], []
    for group in grouped(runs.runs, lambda run: run.recipe).values():
        point = recipe_point(group)
        if point is None:
            unreached.append(unreached_text(group))
        else:
            points.append(point)
    return PlanCurve(tuple(points), workload, None, tuple(unreached))


def unreached_text(runs: Sequence[FinishedRun]) -> str:
    """Return a sentence for a recipe of which no run reached the goal."""
    with_ = f" with {runs[0].metaparameters}" if runs[0].metaparameters else ""
    far = max(run.steps for run in runs)
    count = count_text(len(runs), "run")
    return f"batch size {runs[0].batch_size}{with_}: 0 of {count} reached the goal within {far:,.0f} steps"


def runs_step_times(runs: Runs) -> tuple[StepTime, ...]:
    """Return the step time of every configuration and batch size: all seconds of its runs by all their steps."""
    timed = [run for run in runs.runs if run.device and run.seconds is not None]
    groups = grouped(timed, lambda run: (*run.configuration, run.batch_size))
    return tuple(_step_time(group) for group in groups.values())


def _step_time(group: Sequence[FinishedRun]) -> StepTime:
    pooled, low, high = pooled_step_time(group)
    first = group[0]
    return StepTime(first.device or "", first.hosts, first.devices_per_host, first.batch_size, pooled, low, high)


def pooled_step_time(runs: Sequence[FinishedRun]) -> tuple[float, float | None, float | None]:
    """Return all seconds by all steps of some runs, and the interval of their mean step time."""
    seconds = [run.seconds or math.nan for run in runs]
    pooled = sum(seconds) / sum(run.steps for run in runs)
    _, low, high = mean_interval([s / run.steps for s, run in zip(seconds, runs, strict=True)])
    return pooled, None if low is None else min(low, pooled), None if high is None else max(high, pooled)


def runs_machines(runs: Runs) -> tuple[Machine, ...]:
    """Return the machines of the runs, at the mean price of their host hours, with the most hosts that were used.

    Raises:
        PlanningError: a run has no cost.
    """
    if not runs.have_machines or runs.unit is None:
        raise PlanningError("Runs name machines if each has device, seconds and cost. Found runs without.")
    machines = []
    for (device, per_host), group in grouped(runs.runs, lambda run: (run.device or "", run.devices_per_host)).items():
        host_hours = sum((run.seconds or 0.0) * run.hosts for run in group) / 3600
        price = sum(run.cost or 0.0 for run in group) / host_hours
        most = max(run.hosts for run in group)
        machines.append(Machine(f"{device} x{per_host}", device, per_host, most, price, runs.unit))
    return tuple(machines)
