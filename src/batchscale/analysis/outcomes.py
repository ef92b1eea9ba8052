"""How every trial ended with respect to a goal, and how many ended which way.

Everything that counts trials or picks a winner starts from the one frame made here. Only the metric of the goal is
read, and only the measurements that reach the goal leave the scan, so that an archive of 71.6 million measurements
costs a filter per workload.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import polars as pl

from batchscale.analysis.budgets import budget_steps
from batchscale.analysis.metrics import check_metric
from batchscale.records.frames import STUDY_COLUMNS, Records
from batchscale.records.model import Status
from batchscale.records.precision import widen
from batchscale.spec import Budget, Goal, WorkloadName


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
    wanted = [goals] if isinstance(goals, Goal) else list(goals)
    frames = [_outcomes_of(records, name, wanted) for name in records.workloads]
    if not frames or not wanted:
        return _empty_outcomes(records)
    joined = pl.concat(frames)
    if budget is not None:
        limits = budget_steps(records, budget, num_train_examples).select(*STUDY_COLUMNS, "limit")
        joined = (
            joined.join(limits, on=STUDY_COLUMNS, how="left")
            .with_columns(
                pl.when(pl.col("steps_to_goal") <= pl.col("limit")).then("steps_to_goal").alias("steps_to_goal")
            )
            .drop("limit")
        )
    return joined.with_columns(_outcome().alias("outcome")).select(
        *TRIAL_OUTCOME_SCHEMA, *(name for name in joined.columns if name in records.metaparameters)
    )


def study_outcomes(outcomes: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Per study and goal (and value of the metaparameters ``by``) how many trials ended which way."""
    complete = pl.col("status") == Status.COMPLETE.value
    counts = outcomes.group_by(*STUDY_COLUMNS, "goal", *by).agg(
        complete.sum().cast(pl.Int64).alias("trials"),
        (pl.col("outcome") == Outcome.REACHED.value).sum().cast(pl.Int64).alias("reached"),
        (pl.col("outcome") == Outcome.INFEASIBLE.value).sum().cast(pl.Int64).alias("infeasible"),
        (pl.col("outcome") == Outcome.INCOMPLETE.value).sum().cast(pl.Int64).alias("incomplete"),
    )
    share = pl.when(pl.col("trials") > 0).then(pl.col("reached") / pl.col("trials"))
    return (
        counts.with_columns(share.alias("share_reached"))
        .select(*STUDY_OUTCOME_SCHEMA, *by)
        .sort(*STUDY_COLUMNS, "goal", *by)
    )


def _outcomes_of(records: Records, workload: WorkloadName, goals: list[Goal]) -> pl.DataFrame:
    selected = records.workload(workload).trials
    texts = pl.DataFrame({"goal": list(dict.fromkeys(str(goal) for goal in goals))}, schema={"goal": pl.String})
    firsts = pl.concat([_first_steps(records, workload, group) for group in _by_metric(goals)])
    rows = selected.rename({"steps": "last_step"}).join(texts, how="cross", maintain_order="left_right")
    joined = rows.join(firsts, on=["batch_size", "trial_id", "goal"], how="left", maintain_order="left")
    columns = [name for name in TRIAL_OUTCOME_SCHEMA if name != "outcome"]
    ordered = joined.select(*columns, *records.metaparameters)
    rank = {text: i for i, text in enumerate(texts["goal"])}
    order = pl.col("goal").replace_strict(rank, return_dtype=pl.Int64)
    return ordered.sort("batch_size", order, "trial_id")


def _by_metric(goals: list[Goal]) -> list[list[Goal]]:
    groups: dict[tuple[str, bool], list[Goal]] = {}
    for goal in dict.fromkeys(goals):
        groups.setdefault((goal.metric, goal.maximize), []).append(goal)
    return list(groups.values())


def _first_steps(records: Records, workload: WorkloadName, goals: list[Goal]) -> pl.DataFrame:
    """The first step beyond each goal of one metric, per trial of any status that gets there."""
    metric = goals[0].metric
    frame = records.sources[workload]()
    kind = check_metric(frame, metric, workload)
    loosest = min(goals, key=lambda goal: goal.value if goal.maximize else -goal.value)
    names = [f"goal_{i}" for i in range(len(goals))]
    firsts = (
        frame.select("batch_size", "trial_id", "step", pl.col(metric).alias("value"))
        .filter(_reaches(loosest, kind))
        .group_by("batch_size", "trial_id")
        .agg(
            pl.col("step").filter(_reaches(goal, kind)).min().alias(name)
            for goal, name in zip(goals, names, strict=True)
        )
        .collect()
    )
    parts = [
        firsts.select(
            "batch_size",
            "trial_id",
            pl.lit(str(goal)).alias("goal"),
            pl.col(name).cast(pl.Int64).alias("steps_to_goal"),
        )
        for goal, name in zip(goals, names, strict=True)
    ]
    return pl.concat(parts)


def _reaches(goal: Goal, kind: pl.DataType) -> pl.Expr:
    value = pl.col("value")
    if kind != pl.Float32:
        limit = pl.lit(goal.value)
        # Polars orders NaN above every number, so only a maximised metric needs the second test.
        return (value > limit) & value.is_not_nan() if goal.maximize else value < limit
    # A float32 column holds numbers of six digits. Compared in its own precision it gives what its texts would give,
    # and only a value that rounds to the same float32 as the goal needs its digits to tell.
    limit = pl.lit(goal.value, dtype=pl.Float32)
    tie = widen(pl.Series([goal.value], dtype=pl.Float32)).item()
    if goal.maximize:
        return ((value >= limit) if tie > goal.value else (value > limit)) & value.is_not_nan()
    return value <= limit if tie < goal.value else value < limit


def _outcome() -> pl.Expr:
    return (
        pl.when(pl.col("status") == Status.INFEASIBLE.value)
        .then(pl.lit(Outcome.INFEASIBLE.value))
        .when(pl.col("status") == Status.INCOMPLETE.value)
        .then(pl.lit(Outcome.INCOMPLETE.value))
        .when(pl.col("steps_to_goal").is_not_null())
        .then(pl.lit(Outcome.REACHED.value))
        .otherwise(pl.lit(Outcome.NOT_REACHED.value))
    )


def _empty_outcomes(records: Records) -> pl.DataFrame:
    extra = dict.fromkeys(records.metaparameters, pl.Float64)
    return pl.DataFrame(schema={**TRIAL_OUTCOME_SCHEMA, **extra})
