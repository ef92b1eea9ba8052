"""Steps to result: the product of every study, as DESIGN.md defines it.

The fewest steps, over a study's COMPLETE trials, at which a measurement first passes the goal: strict inequality,
ties to the lower trial id. Owns the frame that curves, fits, regimes and charts start from.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from batchscale.analysis.budgets import known_examples, train_examples
from batchscale.analysis.curves import AnyArray
from batchscale.analysis.groups import group_outcomes
from batchscale.analysis.outcomes import (
    STUDY_OUTCOME_SCHEMA,
    TRIAL_OUTCOME_SCHEMA,
    Outcome,
    trial_outcomes,
)
from batchscale.errors import AnalysisError, suggest_names
from batchscale.records.frames import STUDY_COLUMNS, WORKLOAD_COLUMNS, Records
from batchscale.records.model import Status
from batchscale.spec.durations import Budget
from batchscale.spec.goal import Goal

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
    groups = group_outcomes(outcomes, [*STUDY_COLUMNS, "goal", *by])
    winners, reached = groups.winners()
    heads, best = groups.rows[groups.starts.tolist()], groups.rows[winners.tolist()]
    counts = {
        "trials": groups.count("status", Status.COMPLETE),
        "reached": groups.count("outcome", Outcome.REACHED),
        "infeasible": groups.count("outcome", Outcome.INFEASIBLE),
        "incomplete": groups.count("outcome", Outcome.INCOMPLETE),
    }
    others = [name for name in metaparameters if name not in by]
    columns = {name: heads[name] for name in groups.keys}
    columns |= {name: pl.Series(values.tolist(), dtype=pl.Int64) for name, values in counts.items()}
    share = counts["reached"] / np.maximum(counts["trials"], 1)
    columns["share_reached"] = _where(counts["trials"] > 0, pl.Series(share.tolist(), dtype=pl.Float64))
    columns["steps"] = _where(reached, best["steps_to_goal"])
    columns |= {name: _where(reached, best[name]) for name in ("trial_id", *others)}
    columns["examples"] = columns["steps"] * columns["batch_size"]
    sizes = [train_examples(name, num_train_examples) for name in heads["dataset"].to_list()]
    columns["epochs"] = columns["examples"] / pl.Series(sizes, dtype=pl.Float64)
    frame = pl.DataFrame([columns[name].alias(name) for name in (*RESULT_SCHEMA, *by, *others)])
    return _sorted(frame, outcomes["goal"].unique(maintain_order=True).to_list(), by)


def _where(there: AnyArray, values: pl.Series) -> pl.Series:
    """The values, null elsewhere."""
    return values if there.all() else values.set(pl.Series((~there).tolist(), dtype=pl.Boolean), None)


def _sorted(frame: pl.DataFrame, goals: list[str], by: Sequence[str]) -> pl.DataFrame:
    """The results by workload, goal, ``by`` and batch size; goals in the order asked for, not of their texts."""
    rows = zip(*(frame[name].to_list() for name in (*WORKLOAD_COLUMNS, "goal", *by, "batch_size")), strict=True)
    ranks = {goal: rank for rank, goal in enumerate(goals)}
    # Values of metaparameters may be null, which comes first.
    keys = [(*row[:3], ranks[row[3]], *((value is not None, value) for value in row[4:])) for row in rows]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return frame if order == list(range(len(keys))) else frame[order]
