"""How every trial ended with respect to a goal, and how many ended which way.

Everything that counts trials or picks a winner starts from the one frame made here. Only the metric of the goal is
read, once per open records (``improvements``): every further goal on it is a search in memory.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import numpy as np
import polars as pl

from batchscale.analysis.budgets import budget_steps
from batchscale.analysis.curves import AnyArray
from batchscale.analysis.improvements import find_improvements
from batchscale.records.frames import STUDY_COLUMNS, TRIAL_SCHEMA, Records
from batchscale.records.model import Status
from batchscale.spec.durations import Budget
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName


class Outcome(StrEnum):
    """What became of a trial that was meant to reach a goal."""

    REACHED = "reached"
    NOT_REACHED = "not_reached"
    INFEASIBLE = "infeasible"
    INCOMPLETE = "incomplete"


TRIAL_OUTCOME_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "goal": pl.String,
    "trial_id": pl.Int64,
    "status": pl.String,
    "outcome": pl.String,  # a value of Outcome
    "steps_to_goal": pl.Int64,  # first measurement beyond the goal; null if none (within the budget)
    "last_step": pl.Int64,  # steps the trial was trained: where it is censored if it did not reach the goal
}
# behind these columns: one Float64 column per metaparameter

_KINDS = tuple(Outcome)


STUDY_OUTCOME_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "goal": pl.String,
    "trials": pl.Int64,  # COMPLETE ones
    "reached": pl.Int64,  # COMPLETE ones that reached the goal
    "infeasible": pl.Int64,
    "incomplete": pl.Int64,
    "share_reached": pl.Float64,  # reached / trials; null without trials
}


def trial_outcomes(
    records: Records,
    goals: Goal | Iterable[Goal],
    *,
    budget: Budget | None = None,
    num_train_examples: int | Mapping[str, int] | None = None,
) -> pl.DataFrame:
    """One row per trial and goal: whether and when its measurements first passed the goal.

    Args:
        records: Any number of workloads, each of which must have the goals' metrics.
        goals: One goal or several; all goals on a metric cost one pass over it.
        budget: Count a trial as having reached the goal only within this budget.
        num_train_examples: Size of the training set (by data set, if several), for a budget in epochs where it is
            not one of the paper's.

    Returns:
        A frame of ``TRIAL_OUTCOME_SCHEMA`` and the metaparameters, sorted by workload, batch size, goal and trial id.
        A trial that diverged is ``infeasible`` even if it passed the goal before, as in the paper.
    """
    wanted = [goals] if isinstance(goals, Goal) else list(dict.fromkeys(goals))
    if not wanted or not records.workloads:
        return _empty_outcomes(records)
    limits = None if budget is None else budget_steps(records, budget, num_train_examples)
    frames = [_outcomes_of(records.workload(name), name, wanted, limits) for name in records.workloads]
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def _outcomes_of(
    selected: Records, workload: WorkloadName, goals: list[Goal], limits: pl.DataFrame | None
) -> pl.DataFrame:
    """The outcomes of one workload's trials, by batch size, goal as given, and trial id."""
    rows = selected.cache.get("trials", lambda: _sorted_trials(selected))
    last = None if limits is None else rows.join(limits, on=STUDY_COLUMNS, how="left", maintain_order="left")["limit"]
    parts = []
    for goal in goals:
        steps = _steps_to_goal(selected, workload, goal, rows)
        if last is not None:
            steps[~(steps <= last.to_numpy())] = -1  # a limit that is null is passed by all
        parts.append(_with_outcome(rows, goal, steps))
    if len(parts) == 1:
        return parts[0]
    numbers = pl.Series("number", np.repeat(np.arange(len(parts)), rows.height).tolist(), dtype=pl.Int64)
    return pl.concat(parts).with_columns(numbers).sort("batch_size", "number", "trial_id").drop("number")


def _sorted_trials(selected: Records) -> pl.DataFrame:
    """The columns of outcomes that depend on no goal."""
    columns = [name for name in TRIAL_OUTCOME_SCHEMA if name in TRIAL_SCHEMA]
    rows = selected.trials.select(*columns, pl.col("steps").alias("last_step"), *selected.metaparameters)
    return rows.sort("batch_size", "trial_id")


def _steps_to_goal(selected: Records, workload: WorkloadName, goal: Goal, rows: pl.DataFrame) -> AnyArray:
    """The first step beyond the goal of every row's trial, -1 where there is none."""
    metric = (goal.metric, goal.maximize)
    improvements = find_improvements(selected, workload, *metric)
    places = selected.cache.get(metric, lambda: improvements.places(rows))
    return improvements.first_steps(goal)[places]


def _with_outcome(rows: pl.DataFrame, goal: Goal, steps: AnyArray) -> pl.DataFrame:
    never = steps < 0
    kinds = np.where(never, _KINDS.index(Outcome.NOT_REACHED), _KINDS.index(Outcome.REACHED))
    for status, outcome in ((Status.INCOMPLETE, Outcome.INCOMPLETE), (Status.INFEASIBLE, Outcome.INFEASIBLE)):
        kinds[(rows["status"] == status.value).to_numpy()] = _KINDS.index(outcome)
    columns = {column.name: column for column in rows.get_columns()}
    columns["goal"] = pl.Series("goal", [str(goal)]).new_from_index(0, rows.height)
    columns["outcome"] = pl.Series("outcome", [kind.value for kind in _KINDS])[kinds.tolist()]
    first = [None if step < 0 else step for step in steps.tolist()]
    columns["steps_to_goal"] = pl.Series("steps_to_goal", first, dtype=pl.Int64)
    others = [name for name in columns if name not in TRIAL_OUTCOME_SCHEMA]
    return pl.DataFrame([columns[name] for name in (*TRIAL_OUTCOME_SCHEMA, *others)])


def _empty_outcomes(records: Records) -> pl.DataFrame:
    extra = dict.fromkeys(records.metaparameters, pl.Float64)
    return pl.DataFrame(schema={**TRIAL_OUTCOME_SCHEMA, **extra})
