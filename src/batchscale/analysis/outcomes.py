"""The outcome of every trial for a goal, and groups of outcomes that are counted and searched as arrays.

Everything that counts trials or picks a winner starts from the frame made here. Only the metric of the goal is
read, once per open records (``improvements``): every further goal on it is a search in memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from batchscale.analysis.budgets import budget_steps
from batchscale.analysis.curves import AnyArray
from batchscale.analysis.improvements import find_improvements
from batchscale.records.frames import STUDY_COLUMNS, TRIAL_SCHEMA, Records
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.spec.durations import Budget
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName


class Outcome(StrEnum):
    """The outcome of a trial for a goal."""

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
_MOST = np.iinfo(np.int64).max


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
    confirmations: bool = False,
) -> pl.DataFrame:
    """Return one row per trial and goal, with the step at which its measurements first passed the goal.

    Args:
        records: Any number of workloads, each of which must have the goals' metrics.
        goals: One goal or several; all goals on a metric cost one pass over it.
        budget: Count a trial as having reached the goal only within this budget.
        num_train_examples: Size of the training set (by data set, if several), for a budget in epochs where it is
            not one of the paper's.
        confirmations: True for the trials that train others again with new seeds, which otherwise do not count.

    Returns:
        A frame of ``TRIAL_OUTCOME_SCHEMA`` and the metaparameters, sorted by workload, batch size, goal and trial id.
        A trial that diverged is ``infeasible`` even if it passed the goal before, as in the paper.
    """
    unique_goals = [goals] if isinstance(goals, Goal) else list(dict.fromkeys(goals))
    if not unique_goals or not records.workloads:
        return _empty_outcomes(records)
    limits = None if budget is None else budget_steps(records, budget, num_train_examples)
    frames = [
        _outcomes_of(records.workload(name), name, unique_goals, limits, confirmations) for name in records.workloads
    ]
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def _outcomes_of(
    selected: Records, workload: WorkloadName, goals: list[Goal], limits: pl.DataFrame | None, confirmations: bool
) -> pl.DataFrame:
    """Return the outcomes of one workload's trials by batch size, goal in the order passed, and trial id."""
    kind = "confirmations" if confirmations else "trials"
    rows = selected.cache.get(kind, lambda: _sorted_trials(selected, confirmations))
    last = None if limits is None else rows.join(limits, on=STUDY_COLUMNS, how="left", maintain_order="left")["limit"]
    parts = []
    for goal in goals:
        steps = _steps_to_goal(selected, workload, goal, rows, kind)
        if last is not None:
            steps[~(steps <= last.to_numpy())] = -1  # a limit that is null is passed by all
        parts.append(_with_outcome(rows, goal, steps))
    if len(parts) == 1:
        return parts[0]
    numbers = pl.Series("number", np.repeat(np.arange(len(parts)), rows.height).tolist(), dtype=pl.Int64)
    return pl.concat(parts).with_columns(numbers).sort("batch_size", "number", "trial_id").drop("number")


def _sorted_trials(selected: Records, confirmations: bool) -> pl.DataFrame:
    """Return the columns of outcomes that depend on no goal, of the trials of searches or of confirmations."""
    columns = [name for name in TRIAL_OUTCOME_SCHEMA if name in TRIAL_SCHEMA]
    is_confirmation = pl.col(METADATA).struct.field("confirms").is_not_null()
    trials = selected.trials.filter(is_confirmation if confirmations else ~is_confirmation)
    rows = trials.select(*columns, pl.col("steps").alias("last_step"), *selected.metaparameters)
    return rows.sort("batch_size", "trial_id")


def _steps_to_goal(selected: Records, workload: WorkloadName, goal: Goal, rows: pl.DataFrame, kind: str) -> AnyArray:
    """Return the first step beyond the goal of every row's trial, -1 for none."""
    metric = (goal.metric, goal.maximize)
    improvements = find_improvements(selected, workload, *metric)
    places = selected.cache.get((kind, *metric), lambda: improvements.places(rows))
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


@dataclass(frozen=True, eq=False)
class Groups:
    """Outcomes whose rows with equal keys are adjacent; ``starts`` is the first row of each group.

    A frame of outcomes has hundreds of rows, where a query of Polars costs a hundred times what the sums do.
    """

    rows: pl.DataFrame
    keys: list[str]
    starts: AnyArray

    def count(self, column: str, value: str) -> AnyArray:
        """Return the number of rows of each group that have this value."""
        return self._reduce(np.add, (self.rows[column] == str(value)).to_numpy())

    def winners(self) -> tuple[AnyArray, AnyArray]:
        """Return each group's row with the fewest steps, then the lowest trial id; and a mask of groups with one."""
        best = (self.rows["outcome"] == Outcome.REACHED.value).to_numpy()
        lengths = np.diff(self.starts, append=len(best))
        for column in ("steps_to_goal", "trial_id"):
            values = np.full(len(best), _MOST)
            values[best] = self.rows[column].to_numpy()[best]
            best = best & (values == np.repeat(self._reduce(np.minimum, values), lengths))
        rows = np.flatnonzero(best)
        group = np.searchsorted(self.starts, rows, side="right") - 1
        winners, has_winner = self.starts.copy(), np.zeros(len(self.starts), bool)
        winners[group[::-1]], has_winner[group] = rows[::-1], True
        return winners, has_winner

    def _reduce(self, operation: np.ufunc, values: AnyArray) -> AnyArray:
        if not len(self.starts):
            return np.zeros(0, np.int64)
        return np.asarray(operation.reduceat(values, self.starts, dtype=np.int64))


def group_outcomes(outcomes: pl.DataFrame, keys: list[str]) -> Groups:
    """Return the groups of equal keys, after sorting by them if equal ones are not adjacent."""
    starts = _starts(outcomes, keys)
    heads = [outcomes[name][starts.tolist()].to_list() for name in keys]
    if len(set(zip(*heads, strict=True))) < len(starts):
        outcomes = outcomes.sort(keys, maintain_order=True)
        starts = _starts(outcomes, keys)
    return Groups(outcomes, keys, starts)


def _starts(frame: pl.DataFrame, keys: list[str]) -> AnyArray:
    """Return the rows in which any key differs from the row before."""
    changed = np.ones(frame.height, bool)
    if frame.height:
        changed[1:] = False
    for name in keys:
        column = frame[name]
        if column.null_count():
            null = column.is_null().to_numpy()
            changed[1:] |= null[1:] != null[:-1]
        same = column.slice(1) == column.slice(0, max(len(column) - 1, 0))  # null where either is
        changed[1:] |= (~same).fill_null(False).to_numpy() if same.null_count() else ~same.to_numpy()
    return np.flatnonzero(changed)
