"""The critical batch size at easier goals, extrapolated to the asked one.

Easier goals are reached early, so short runs measure whole curves for them. The critical batch size grows as a power of
the examples that a goal takes: log B_crit = a + b·log E. The easier goals share their trials, so their errors are not
independent: the level is as uncertain as the best of them alone. Their exponent b is combined with the published ones
(0.38 to 0.57 against tokens), taken as 0.5 ± 0.35.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curve_analysis import analyze
from batchscale.analysis.intervals import Estimate
from batchscale.errors import AnalysisError
from batchscale.formatting import rounded_text
from batchscale.prediction.base_trial import BaseTrial, base_batch_size, read_base_trial
from batchscale.prediction.prediction import Prediction, refuse_vague
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

METHOD = "easier_goals"
SHARES = (1 / 4, 1 / 6, 1 / 9)
"""The easier goals: what a tuned trial reached after these shares of its steps."""
EXPONENT, EXPONENT_ERROR = 0.5, 0.35
NORMAL_90 = 1.645
WIDEST = math.log(8)
"""The error of a critical batch size without an interval, and the largest that is used."""
ASSUMPTION = (
    "The critical batch size grows as a power of the examples to a goal, with one exponent from the easier goals on, "
    "and few trials tune as well as many."
)


@dataclass(frozen=True)
class GoalPoint:
    """The critical batch size for an easier goal, whose examples are this share of those to the asked one."""

    goal: Goal
    share: float
    critical: Estimate


def easier_goals(values: Mapping[int, float], steps: int, goal: Goal, shares: Sequence[float] = SHARES) -> list[Goal]:
    """Return the goals that a trial reached after shares of its steps, the hardest first, all easier than ``goal``.

    Args:
        values: The goal's metric of the trial by measured step, up to ``steps``.
        steps: The steps at which it reached the goal.
        goal: The asked goal.
        shares: Shares of the steps, falling.
    """
    sign = -1.0 if goal.maximize else 1.0
    goals: list[Goal] = []
    for share in shares:
        early = [sign * value for step, value in values.items() if 0 < step <= max(share * steps, 1)]
        if not early:
            continue
        best = min(early)
        value = sign * float(f"{best + 0.001 * abs(best):.6g}")  # a goal is passed, not met
        is_easier = value < goal.value if goal.maximize else value > goal.value
        if is_easier and all(value != other.value for other in goals):
            goals.append(Goal(goal.metric, value, goal.maximize))
    return goals


def steps_to(values: Mapping[int, float], goal: Goal) -> int | None:
    """Return the first measured step at which a trial passes a goal; None if it never does."""
    return next((step for step, value in sorted(values.items()) if goal.is_reached_by(value)), None)


def measure_goals(
    records: Records, workload: WorkloadName, goals: Sequence[Goal], shares: Sequence[float]
) -> list[GoalPoint]:
    """Return the critical batch sizes of short runs for several goals; a goal without one is left out."""
    points = []
    for goal, share in zip(goals, shares, strict=True):
        try:
            summary = analyze(records, workload, goal).summary
        except AnalysisError:
            continue
        if summary is not None and summary.critical.value is not None:
            points.append(GoalPoint(goal, share, summary.critical))
    return points


def extrapolate(points: Sequence[GoalPoint]) -> Estimate:
    """Return the critical batch size at a share of 1, with its 90 % interval.

    >>> goal = Goal("val/loss", 0.5)
    >>> points = [GoalPoint(goal, share, Estimate(v, 0.9 * v, 1.1 * v)) for share, v in ((0.25, 100.0), (0.0625, 50.0))]
    >>> estimate = extrapolate(points)
    >>> round(estimate.value), round(estimate.low), round(estimate.high)
    (200, 157, 255)
    """
    logs = np.log([point.critical.value or 1.0 for point in points])
    errors = np.array([_log_error(point.critical) for point in points])
    shares = np.log([point.share for point in points])
    weights = errors**-2
    center, level = np.average(shares, weights=weights), np.average(logs, weights=weights)
    precision = EXPONENT_ERROR**-2 + float((weights * (shares - center) ** 2).sum())
    slope = (EXPONENT * EXPONENT_ERROR**-2 + float((weights * (shares - center) * (logs - level)).sum())) / precision
    value = float(level - slope * center)  # at log share 0
    error = math.hypot(float(errors.min()), float(center) / math.sqrt(precision))
    return Estimate(math.exp(value), math.exp(value - NORMAL_90 * error), math.exp(value + NORMAL_90 * error))


def easier_goals_prediction(points: Sequence[GoalPoint], trial_steps: int, examples: int) -> Prediction:
    """Return the prediction from easier goals, with a line for each of them."""
    details = tuple(
        f"{point.goal}, {point.share:.0%} of the examples: B_crit {_estimate_text(point.critical)}" for point in points
    )
    reason = "" if points else "No easier goal has a critical batch size: the short runs did not bend, or were too few."
    estimate = extrapolate(points) if points else Estimate()
    return refuse_vague(
        Prediction(METHOD, "critical_batch_size", estimate, trial_steps, examples, ASSUMPTION, reason, details)
    )


def read_easier_goals(records: Records, name: WorkloadName, goal: Goal) -> Prediction:
    """Return the prediction from the first measurements of recorded trials; it costs nothing more.

    Raises:
        AnalysisError: No trial reached the goal, or the best one was measured too rarely on its way.
    """
    sizes = tuple(sorted(int(size) for size in records.workload(name).studies["batch_size"]))
    base = read_base_trial(records, name, goal, base_batch_size(sizes), paid=False)
    goals = easier_goals(base.values, base.steps, goal)
    shares = goal_shares(base, goals)
    return easier_goals_prediction(measure_goals(records, name, goals, shares), 0, 0)


def goal_shares(base: BaseTrial, goals: Sequence[Goal]) -> list[float]:
    """Return the share of a tuned trial's steps after which it passed each of the goals.

    Raises:
        AnalysisError: There are no easier goals, because it was measured too rarely.
    """
    steps = [steps_to(base.values, goal) for goal in goals]
    shares = [step / base.steps for step in steps if step]
    if not goals or len(shares) < len(goals):
        raise AnalysisError(
            "The tuned trial was measured too rarely on its way to the goal for easier goals; measure more often, "
            "with [evaluation] count or every."
        )
    return shares


def _log_error(critical: Estimate) -> float:
    value = critical.value or 1.0
    ends = [abs(math.log(end / value)) for end in (critical.low, critical.high) if end]
    error = max(ends) / NORMAL_90 if len(ends) == 2 else WIDEST
    return min(max(error, 0.05), WIDEST)


def _estimate_text(estimate: Estimate) -> str:
    low, high = (rounded_text(end) if end is not None else "?" for end in (estimate.low, estimate.high))
    return f"{rounded_text(estimate.value)} ({low} to {high})"
