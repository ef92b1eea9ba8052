"""A plan as a whole: inputs checked, every configuration evaluated, the answers found."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from batchscale.errors import PlanningError, UnknownNameError, one_line, suggest_names
from batchscale.planning.answers import Answers, find_answers
from batchscale.planning.candidates import Candidates, check_give_up, make_candidates, measured_candidates
from batchscale.planning.curve import Curve
from batchscale.planning.evaluation import RunCosts, evaluate
from batchscale.planning.machines import Machine, one_unit
from batchscale.planning.runs import Runs, give_up_at, runs_step_times
from batchscale.planning.step_model import StepModel, fit_step_model
from batchscale.planning.step_times import StepTime, check_workload, device_key, merge_step_times


@dataclass(frozen=True)
class Wishes:
    """What is asked of a plan besides the fastest and the cheapest."""

    budget: float | None = None
    deadline_s: float | None = None
    costs: RunCosts = field(default_factory=RunCosts)
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchCost:
    """What measuring the curve took, and cost in the plan's unit."""

    time_s: float
    cost: float


@dataclass(frozen=True)
class MachinePlan:
    """A frame of ``PLAN_SCHEMA`` by expected time, the answers, and all that they rest on.

    ``by_device`` has the answers among the machines of each kind of device, where there are several kinds.
    """

    table: pl.DataFrame
    answers: Answers
    by_device: dict[str, Answers]
    unit: str
    models: tuple[StepModel, ...] = ()
    left_out: tuple[str, ...] = ()
    workload: str | None = None
    goal: str | None = None
    search: SearchCost | None = None
    wishes: Wishes = field(default_factory=Wishes)


def plan_from_runs(runs: Runs, wishes: Wishes | None = None, give_up: float | None = None) -> MachinePlan:
    """The plan that runs make alone: each configuration as it was measured, failed runs paid for.

    Raises:
        PlanningError: they do not say device, seconds and cost, or none of them reached the goal.
    """
    asked = wishes or Wishes()
    kept = runs if give_up is None else Runs(give_up_at(runs.runs, give_up), runs.unit)
    candidates = measured_candidates(kept)
    models = fit_models(runs_step_times(runs))
    return _finish(candidates, asked, CurveNote(), tuple(models.values()))


def make_plan(
    curve: Curve,
    times: Sequence[StepTime],
    machines: Sequence[Machine],
    wishes: Wishes | None = None,
    models: Mapping[str, StepModel] | None = None,
) -> MachinePlan:
    """The plan of a curve on machines whose step times were measured, or follow from those that were.

    ``models`` are those of ``fit_models`` for these step times, where a caller plans with them more than once.

    Raises:
        PlanningError: units are mixed, step times are of another workload, or nothing can be used.
    """
    check_workload(times, curve.workload)
    check_give_up(curve.points)
    if not machines:
        raise PlanningError("A plan needs machines with prices. Found none.")
    unit = one_unit(machines)
    merged = merge_step_times(times)
    fitted = models or fit_models(merged)
    candidates = make_candidates(curve, merged, fitted, machines, unit)
    facts = CurveNote(curve.workload, curve.goal, curve.unreached)
    return _finish(candidates, wishes or Wishes(), facts, tuple(fitted.values()))


def fit_models(times: Iterable[StepTime]) -> dict[str, StepModel]:
    """A model for each kind of device, by ``device_key``."""
    groups: dict[str, list[StepTime]] = {}
    for one in times:
        groups.setdefault(device_key(one.device), []).append(one)
    return {key: fit_step_model(group) for key, group in groups.items()}


@dataclass(frozen=True)
class CurveNote:
    """What a plan says of its curve."""

    workload: str | None = None
    goal: str | None = None
    unreached: tuple[str, ...] = ()


def _finish(candidates: Candidates, wishes: Wishes, facts: CurveNote, models: tuple[StepModel, ...]) -> MachinePlan:
    left_out = [*facts.unreached, *candidates.left_out]
    chosen = _of_devices(candidates.frame, wishes.devices)
    if chosen.is_empty():
        raise PlanningError(
            f"No configuration can be used: {'; '.join(left_out[:5]) or 'there are none'}. Measure step times with "
            "'batchscale calibrate', or name other machines."
        )
    table, endless = evaluate(chosen, wishes.costs)
    if endless:
        left_out.append(f"{endless:,} configurations: interrupted faster than they can start again")
    if table.is_empty():
        raise PlanningError(f"No configuration can be used: {'; '.join(left_out[:5])}.")
    answers = find_answers(table, wishes.budget, wishes.deadline_s)
    devices = table["device"].unique(maintain_order=True).sort().to_list()
    by_device = {
        device: find_answers(table.filter(pl.col("device") == device), wishes.budget, wishes.deadline_s)
        for device in devices
        if len(devices) > 1
    }
    return MachinePlan(
        table=table,
        answers=answers,
        by_device=by_device,
        unit=table["unit"][0],
        models=models,
        left_out=tuple(left_out),
        workload=facts.workload,
        goal=facts.goal,
        wishes=wishes,
    )


def _of_devices(frame: pl.DataFrame, devices: Sequence[str]) -> pl.DataFrame:
    if not devices:
        return frame
    known = {device_key(device): device for device in frame["device"].unique()}
    for device in devices:
        if device_key(device) not in known:
            raise UnknownNameError(
                f"--device: nothing was planned for '{one_line(device)}'; {suggest_names(device, known.values())}"
            )
    names = [known[device_key(device)] for device in devices]
    return frame.filter(pl.col("device").is_in(names))
