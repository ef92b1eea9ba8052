"""Steps to result: the product of every study, as DESIGN.md defines it.

The fewest steps, over a study's COMPLETE trials, at which a measurement first passes the goal: strict inequality,
ties to the lower trial id. Owns the frame that curves, fits, regimes and charts start from.
"""

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from batchscale.analysis.budgets import known_examples, train_examples
from batchscale.analysis.outcomes import (
    STUDY_OUTCOME_SCHEMA,
    TRIAL_OUTCOME_SCHEMA,
    Outcome,
    study_outcomes,
    trial_outcomes,
)
from batchscale.errors import AnalysisError, suggest_names
from batchscale.records.frames import STUDY_COLUMNS, WORKLOAD_COLUMNS, Records
from batchscale.spec import Budget, Goal

RESULT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    **STUDY_OUTCOME_SCHEMA,
    "steps": pl.Int64,  # null: no COMPLETE trial reached the goal
    "trial_id": pl.Int64,  # the winner; null likewise
    "examples": pl.Int64,  # steps * batch_size
    "epochs": pl.Float64,  # examples / training examples; null where their number is not known
}
# behind these columns: ``by``, then one Float64 column per metaparameter of the winning trial


def steps_to_result(
    records: Records,
    goals: Goal | Iterable[Goal],
    *,
    by: Sequence[str] = (),
    budget: Budget | None = None,
    num_train_examples: int | Mapping[str, int] | None = None,
) -> pl.DataFrame:
    """The steps to result of every study for every goal, with the winning trial and its metaparameters.

    Args:
        records: Any number of workloads, each of which must have the goals' metrics.
        goals: One goal or several, on training or validation metrics.
        by: Metaparameters whose values split each study (``label_smoothing`` in Figure 7b).
        budget: Only measurements within this budget count.
        num_train_examples: Size of the training set (by data set, if several), for the ``epochs`` column, where the
            records do not say it.

    Returns:
        A frame of ``RESULT_SCHEMA``, one row per study, goal and value of ``by``, sorted by these; a study that did
        not reach a goal keeps its row, with null steps.
    """
    outcomes = trial_outcomes(records, goals, budget=budget, num_train_examples=num_train_examples)
    return results_of(outcomes, by=by, num_train_examples=known_examples(records, num_train_examples))


def results_of(
    outcomes: pl.DataFrame, *, by: Sequence[str] = (), num_train_examples: int | Mapping[str, int] | None = None
) -> pl.DataFrame:
    """The steps to result of a frame of trial outcomes (see ``steps_to_result``)."""
    metaparameters = [name for name in outcomes.columns if name not in TRIAL_OUTCOME_SCHEMA]
    for name in by:
        if name not in metaparameters:
            raise AnalysisError(f"by: '{name}' is no metaparameter here; {suggest_names(name, metaparameters)}")
    keys = [*STUDY_COLUMNS, "goal", *by]
    winners = (
        outcomes.filter(pl.col("outcome") == Outcome.REACHED.value)
        .sort("steps_to_goal", "trial_id")
        .unique(keys, keep="first", maintain_order=True)
        .select(*keys, pl.col("steps_to_goal").alias("steps"), "trial_id", *(m for m in metaparameters if m not in by))
    )
    # The order of goals as asked for, not of their texts.
    goals = outcomes["goal"].unique(maintain_order=True).to_list()
    order = pl.col("goal").replace_strict(
        {goal: i for i, goal in enumerate(goals)}, default=None, return_dtype=pl.Int64
    )
    results = study_outcomes(outcomes, by).join(winners, on=keys, how="left", nulls_equal=True)
    sizes = {name: train_examples(name, num_train_examples) for name in results["dataset"].unique()}
    size = pl.col("dataset").replace_strict(sizes, default=None, return_dtype=pl.Float64)
    return (
        results.with_columns((pl.col("steps") * pl.col("batch_size")).alias("examples"))
        .with_columns((pl.col("examples") / size).alias("epochs"))
        .select(*RESULT_SCHEMA, *by, *(m for m in metaparameters if m not in by))
        .sort(*WORKLOAD_COLUMNS, order, *by, "batch_size")
    )
