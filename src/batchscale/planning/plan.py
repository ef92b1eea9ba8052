"""The plan of a curve, or of runs: every configuration evaluated, and the recommendations.

``assemble`` decides which step times and machines are used; here they are given.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from batchscale.analysis.curve_analysis import AnalysisOptions, analyze_points
from batchscale.analysis.scaling import FEWEST_POINTS
from batchscale.analysis.summary import CurveSummary
from batchscale.errors import PlanningError, UnknownNameError, one_line, suggest_names
from batchscale.planning.candidates import Candidates, check_give_up, make_candidates, measured_candidates
from batchscale.planning.curve import PlanCurve
from batchscale.planning.devices import device_key, match_devices, nearest_devices
from batchscale.planning.estimate import StepEstimate
from batchscale.planning.evaluation import RunCosts, evaluate
from batchscale.planning.first_measurement import FirstMeasurement, find_first_measurement
from batchscale.planning.machines import Machine, one_unit
from batchscale.planning.recommend import Recommendations, recommend
from batchscale.planning.runs import Runs, give_up_at, runs_step_times
from batchscale.planning.step_model import MEASURED, StepModel, fit_step_model
from batchscale.planning.step_times import StepTime, check_workload, merge_step_times


@dataclass(frozen=True)
class PlanRequest:
    """The limits of a plan: budget, deadline, evaluations of a run, and the devices that may be used (none: all)."""

    budget: float | None = None
    deadline_s: float | None = None
    costs: RunCosts = field(default_factory=RunCosts)
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchCost:
    """The time that measuring the curve took, and its cost in the plan's unit."""

    time_s: float
    cost: float


@dataclass(frozen=True)
class MachinePlan:
    """A frame of ``PLAN_SCHEMA`` by expected time, the recommendations, and their inputs.

    ``by_device`` has the recommendations among the machines of each kind of device, if there are several kinds.
    ``notices`` are warnings about the inputs, such as old prices. ``has_own_script`` is True if the curve was measured
    with a training script of the user. ``summary`` is that of the measured curve; None for runs and for fewer than
    three sizes. ``estimates`` are those of machines by name, ``first_measurement`` what would sharpen them most.
    """

    table: pl.DataFrame
    recommendations: Recommendations
    by_device: dict[str, Recommendations]
    unit: str
    models: tuple[StepModel, ...] = ()
    estimates: Mapping[str, StepEstimate] = field(default_factory=dict)
    first_measurement: FirstMeasurement | None = None
    left_out: tuple[str, ...] = ()
    workload: str | None = None
    goal: str | None = None
    search: SearchCost | None = None
    request: PlanRequest = field(default_factory=PlanRequest)
    notices: tuple[str, ...] = ()
    has_own_script: bool = False
    summary: CurveSummary | None = None


def plan_from_runs(runs: Runs, request: PlanRequest | None = None, give_up: float | None = None) -> MachinePlan:
    """Return the plan of runs alone: each configuration as measured, failed runs included in its cost.

    Raises:
        PlanningError: a run lacks device, seconds or cost, or none of them reached the goal.
    """
    judged = runs if give_up is None else Runs(give_up_at(runs.runs, give_up), runs.unit)
    candidates = measured_candidates(judged)
    models = fit_models(runs_step_times(runs))
    return _evaluate_plan(candidates, request or PlanRequest(), tuple(models.values()))


def make_plan(
    curve: PlanCurve,
    times: Sequence[StepTime],
    machines: Sequence[Machine],
    request: PlanRequest | None = None,
    models: Mapping[str, StepModel] | None = None,
    estimates: Mapping[str, StepEstimate] | None = None,
) -> MachinePlan:
    """Return the plan of a curve on machines whose step times were measured or can be modelled.

    Args:
        curve: Steps to the goal by batch size.
        times: Measured step times.
        machines: Machines with prices; those without a measured device are left out and counted.
        request: Limits of the plan.
        models: The models of ``fit_models`` for these step times, if a caller plans with them more than once.
        estimates: Estimates by the name of a machine, for what was not measured and cannot be modelled.

    Raises:
        PlanningError: units are mixed, step times are of another workload, or no configuration can be used.
    """
    check_workload(times, curve.workload)
    check_give_up(curve.points)
    if not machines:
        raise PlanningError("A plan needs machines with prices. Found none.")
    merged = merge_step_times(times)
    fitted = models or fit_models(merged)
    matches = match_devices((machine.device for machine in machines), (model.device for model in fitted.values()))
    if matches.ambiguous and not matches.keys and not estimates:
        raise PlanningError(f"Each machine must have one device of the step times. {matches.ambiguous[0]}")
    estimated = estimates or {}
    one_unit([m for m in machines if m.device in matches.keys or m.name in estimated] or machines)
    candidates = make_candidates(curve, merged, fitted, machines, matches.keys, estimated)
    left_out = (*curve.unreached, *candidates.left_out)
    limits = request or PlanRequest()
    candidates, models_used = replace(candidates, left_out=left_out), tuple(fitted.values())
    plan = _evaluate_plan(candidates, limits, models_used, curve.tokens_per_example)
    summary = _summarize(curve)
    return replace(
        plan,
        workload=curve.workload,
        goal=curve.goal,
        notices=matches.ambiguous,
        summary=summary,
        estimates=dict(estimated),
        first_measurement=find_first_measurement(plan.table, estimated, for_time=limits.budget is not None),
    )


def _summarize(curve: PlanCurve) -> CurveSummary | None:
    points = [(point.batch_size, point.steps) for point in curve.points if point.source == MEASURED]
    if len({size for size, _ in points}) < max(FEWEST_POINTS, len(points)):
        return None  # too few sizes, or several choices of metaparameters at one
    frame = pl.DataFrame(points, schema=["batch_size", "steps"], orient="row")
    return analyze_points(frame, AnalysisOptions(tokens_per_example=curve.tokens_per_example)).summary


def fit_models(times: Iterable[StepTime]) -> dict[str, StepModel]:
    """Return a model for each kind of device, by ``device_key``."""
    groups: dict[str, list[StepTime]] = {}
    for time in times:
        groups.setdefault(device_key(time.device), []).append(time)
    return {key: fit_step_model(group) for key, group in groups.items()}


def _evaluate_plan(
    candidates: Candidates,
    request: PlanRequest,
    models: tuple[StepModel, ...],
    tokens_per_example: int | None = None,
) -> MachinePlan:
    left_out = list(candidates.left_out)
    usable = _with_devices(candidates.frame, request.devices)
    if usable.is_empty():
        raise PlanningError(
            f"No configuration can be used: {'; '.join(left_out[:5]) or 'there are none'}. Measure step times with "
            "'batchscale calibrate', or name other machines."
        )
    tokens_column = pl.lit(tokens_per_example, dtype=pl.Int64).alias("tokens_per_example")
    table, endless = evaluate(usable.with_columns(tokens_column), request.costs)
    if endless:
        left_out.append(f"{endless:,} configurations: interrupted faster than they can start again")
    if table.is_empty():
        raise PlanningError(f"No configuration can be used: {'; '.join(left_out[:5])}.")
    devices = table["device"].unique(maintain_order=True).sort().to_list()
    return MachinePlan(
        table=table,
        recommendations=recommend(table, request.budget, request.deadline_s),
        by_device={
            device: recommend(table.filter(pl.col("device") == device), request.budget, request.deadline_s)
            for device in devices
            if len(devices) > 1
        },
        unit=table["unit"][0],
        models=models,
        left_out=tuple(left_out),
        request=request,
    )


def _with_devices(frame: pl.DataFrame, devices: Sequence[str]) -> pl.DataFrame:
    if not devices:
        return frame
    planned = frame["device"].unique().to_list()
    names = []
    for device in devices:
        matching = nearest_devices(device, planned)
        if not matching:
            raise UnknownNameError(
                f"--device: no configuration has '{one_line(device)}'; {suggest_names(device, planned)}"
            )
        names += matching
    return frame.filter(pl.col("device").is_in(names))
