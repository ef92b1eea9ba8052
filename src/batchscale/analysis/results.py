"""Steps to result, the product of every study, and the flags of the winning trials.

The fewest steps, over a study's COMPLETE trials, at which a measurement first passes the goal: strict inequality,
ties to the lower trial id. Curves, fits, regimes and charts start from the frame made here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from batchscale.analysis.budgets import examples_by_dataset, train_examples
from batchscale.analysis.curves import AnyArray
from batchscale.analysis.improvements import find_improvements
from batchscale.analysis.outcomes import (
    STUDY_OUTCOME_SCHEMA,
    TRIAL_OUTCOME_SCHEMA,
    Outcome,
    group_outcomes,
    trial_outcomes,
)
from batchscale.errors import AnalysisError, suggest_names
from batchscale.records.frames import STUDY_COLUMNS, WORKLOAD_COLUMNS, Records, searched_spaces
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.search.edge_guard import DEFAULT_MARGIN, RankedTrial, far_ends, find_edges, goal_score
from batchscale.spec.durations import Budget
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

RESULT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    **STUDY_OUTCOME_SCHEMA,
    "steps": pl.Int64,  # null: no COMPLETE trial reached the goal
    "trial_id": pl.Int64,  # the winner; null likewise
    "examples": pl.Int64,  # steps * batch_size
    "epochs": pl.Float64,  # examples / training examples; null where their number is unknown
}

# behind these columns: ``by``, then one Float64 column per metaparameter of the winning trial

WINNER_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "edge_distance": pl.Float64,  # to the nearest end that has something beyond it, as a share of the range
    "edge": pl.String,  # "learning_rate high": the nearest end, or all ends that the winner is at
    "at_edge": pl.Boolean,  # null without a winner
    "searches": pl.Int64,  # how often the study was searched; 1 if not recorded
    "extra_searches": pl.Boolean,  # more than once: an extra bite of the apple (section 5.1)
}


def steps_to_result(
    records: Records,
    goals: Goal | Iterable[Goal],
    *,
    by: Sequence[str] = (),
    budget: Budget | None = None,
    num_train_examples: int | Mapping[str, int] | None = None,
) -> pl.DataFrame:
    """Return the steps to result of every study for every goal, with the winning trial and its metaparameters.

    Args:
        records: Any number of workloads, each of which must have the goals' metrics.
        goals: One goal or several, on training or validation metrics.
        by: Metaparameters whose values split each study (``label_smoothing`` in Figure 7b).
        budget: Only measurements within this budget count.
        num_train_examples: Size of the training set (by data set, if several), for the ``epochs`` column, where the
            records lack it.

    Returns:
        A frame of ``RESULT_SCHEMA``, one row per study, goal and value of ``by``, sorted by these; a study that did
        not reach a goal keeps its row, with null steps.
    """
    outcomes = trial_outcomes(records, goals, budget=budget, num_train_examples=num_train_examples)
    return results_of(outcomes, by=by, num_train_examples=examples_by_dataset(records, num_train_examples))


def results_of(
    outcomes: pl.DataFrame, *, by: Sequence[str] = (), num_train_examples: int | Mapping[str, int] | None = None
) -> pl.DataFrame:
    """Return the steps to result of a frame of trial outcomes (see ``steps_to_result``)."""
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


def _where(mask: AnyArray, values: pl.Series) -> pl.Series:
    """Return the values, null where the mask is False."""
    return values if mask.all() else values.set(pl.Series((~mask).tolist(), dtype=pl.Boolean), None)


def _sorted(frame: pl.DataFrame, goals: list[str], by: Sequence[str]) -> pl.DataFrame:
    """Sort results by workload, goal, ``by`` and batch size; goals in the order passed, not of their texts."""
    rows = zip(*(frame[name].to_list() for name in (*WORKLOAD_COLUMNS, "goal", *by, "batch_size")), strict=True)
    ranks = {goal: rank for rank, goal in enumerate(goals)}
    # Values of metaparameters may be null, which comes first.
    keys = [(*row[:3], ranks[row[3]], *((value is not None, value) for value in row[4:])) for row in rows]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return frame if order == list(range(len(keys))) else frame[order]


def winner_edges(
    records: Records, outcomes: pl.DataFrame, results: pl.DataFrame, margin: float = DEFAULT_MARGIN
) -> pl.DataFrame:
    """Add the columns of ``WINNER_SCHEMA`` to a frame of ``steps_to_result`` (of whole studies).

    A winner is at an edge by `search.find_edges`, called as a run calls it when a study ends: with all trials that
    ended, the study's step budget, and the margin of its run, or else ``margin``. So for the goal that a study was
    run for this is the result of the run, and for every other goal that of a run for it.

    Args:
        records: Of the workloads in ``results``.
        outcomes: The frame of ``trial_outcomes`` that the results are of.
        results: With a row for each study and goal.
        margin: For studies without a recorded one.
    """
    plans = records.studies.select(*STUDY_COLUMNS, "train_steps", pl.col(METADATA).struct.field("edge_margin"))
    recorded = {row[:4]: row[4:] for row in plans.iter_rows()}
    spaces = searched_spaces(records)
    trials = dict(_winners_trials(records, outcomes, results))
    rows: list[tuple[object, ...]] = []
    for row in results.iter_rows(named=True):
        study = tuple(row[name] for name in STUDY_COLUMNS)
        searched = spaces[study]
        ranked = trials.get((*study, row["goal"]))
        if ranked is None:
            rows.append((None, None, None, len(searched), len(searched) > 1))
            continue
        train_steps, run_margin = recorded[study]
        edges = find_edges(searched, ranked, margin if run_margin is None else run_margin, train_steps or None)
        best = min(ranked, key=lambda trial: trial.score)
        near = [edge for edge, _ in far_ends(searched, best.values, train_steps or None) if not edge.natural]
        names = [f"{edge.parameter} {edge.side}" for edge in edges or near[:1]]
        distance = near[0].distance if near else None
        rows.append((distance, ", ".join(names) or None, bool(edges), len(searched), len(searched) > 1))
    return results.hstack(pl.DataFrame(rows, schema=WINNER_SCHEMA, orient="row"))


def _winners_trials(
    records: Records, outcomes: pl.DataFrame, results: pl.DataFrame
) -> Iterator[tuple[tuple[object, ...], list[RankedTrial]]]:
    """Yield the trials that ended, by id, of every study and goal that has a winner."""
    key = [*STUDY_COLUMNS, "goal"]
    names = [name for name in records.metaparameters if name in outcomes.columns]
    ended = outcomes.filter(pl.col("outcome") != Outcome.INCOMPLETE.value).join(
        results.filter(pl.col("trial_id").is_not_null()).select(key), on=key, how="semi", maintain_order="left"
    )
    for (*workload, text), group in ended.group_by(*WORKLOAD_COLUMNS, "goal", maintain_order=True):
        goal = Goal.parse(text)
        improvements = find_improvements(records, WorkloadName(*map(str, workload)), goal.metric, goal.maximize)
        best = pl.Series("best", improvements.best_values()[improvements.places(group)].tolist(), dtype=pl.Float64)
        scored = group.select("batch_size", "trial_id", "steps_to_goal", best, "outcome", *names).sort("trial_id")
        for (size,), study in scored.group_by("batch_size"):
            yield (*workload, size, text), [_ranked(row, names) for row in study.iter_rows(named=True)]


def _ranked(row: Mapping[str, Any], names: Sequence[str]) -> RankedTrial:
    score = goal_score(row["steps_to_goal"], row["best"], diverged=row["outcome"] == Outcome.INFEASIBLE.value)
    return RankedTrial({name: row[name] for name in names if row[name] is not None}, score)


def winner_spacing(records: Records, results: pl.DataFrame) -> pl.DataFrame:
    """Add ``spacing`` to a frame of ``steps_to_result``: steps between the winning measurement and the one before.

    The goal was passed somewhere in between.
    """
    frames = []
    for key, group in results.group_by("dataset", "model", "optimizer", maintain_order=True):
        winners = group.filter(pl.col("trial_id").is_not_null()).select("batch_size", "trial_id", "steps").unique()
        source = records.sources[WorkloadName(*(str(part) for part in key))]().select("batch_size", "trial_id", "step")
        before = (
            source.join(winners.lazy(), on=["batch_size", "trial_id"])
            .filter(pl.col("step") < pl.col("steps"))
            .group_by("batch_size", "trial_id", "steps")
            .agg(pl.col("step").max().alias("before"))
            .collect()
        )
        joined = group.join(before, on=["batch_size", "trial_id", "steps"], how="left", maintain_order="left")
        spacing = pl.col("steps") - pl.col("before").fill_null(0)
        frames.append(joined.with_columns(spacing.cast(pl.Int64).alias("spacing")).drop("before"))
    return pl.concat(frames) if frames else results.with_columns(pl.lit(None, dtype=pl.Int64).alias("spacing"))
