"""What stands behind a winner: its distance to the edges of its space, its study's searches, its evaluation spacing.

The flags made here go into every table and chart.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from batchscale.analysis.improvements import find_improvements
from batchscale.analysis.outcomes import Outcome
from batchscale.records.frames import STUDY_COLUMNS, WORKLOAD_COLUMNS, Records, searched_spaces
from batchscale.records.metadata.columns import METADATA
from batchscale.search.edge_guard import DEFAULT_MARGIN, RankedTrial, far_ends, find_edges, goal_score
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

WINNER_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "edge_distance": pl.Float64,  # to the nearest end that has something beyond it, as a share of the range
    "edge": pl.String,  # "learning_rate high": the nearest end, or all ends that the winner is at
    "at_edge": pl.Boolean,  # null without a winner
    "searches": pl.Int64,  # how often the study was searched; 1 where nothing is said
    "extra_searches": pl.Boolean,  # more than once: an extra bite of the apple (section 5.1)
}


def winner_edges(
    records: Records, outcomes: pl.DataFrame, results: pl.DataFrame, margin: float = DEFAULT_MARGIN
) -> pl.DataFrame:
    """The frame of ``steps_to_result`` (of whole studies) with the columns of ``WINNER_SCHEMA`` behind it.

    A winner is at an edge by `search.find_edges`, asked as a run asks it when a study ends: with all trials that came
    to their end, the study's step budget, and the margin that its run was given, or else ``margin``. So for the goal
    that a study was run for this is what the run found, and for every other goal what a run for it would have found.

    Args:
        records: Of the workloads in ``results``.
        outcomes: The frame of ``trial_outcomes`` that the results are of.
        results: With a row for each study and goal.
        margin: For studies that do not say theirs.
    """
    plans = records.studies.select(*STUDY_COLUMNS, "train_steps", pl.col(METADATA).struct.field("edge_margin"))
    known = {row[:4]: row[4:] for row in plans.iter_rows()}
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
        train_steps, own = known[study]
        found = find_edges(searched, ranked, margin if own is None else own, train_steps or None)
        best = min(ranked, key=lambda trial: trial.score)
        near = [edge for edge, _ in far_ends(searched, best.values, train_steps or None) if not edge.natural]
        shown = [f"{edge.parameter} {edge.side}" for edge in found or near[:1]]
        distance = near[0].distance if near else None
        rows.append((distance, ", ".join(shown) or None, bool(found), len(searched), len(searched) > 1))
    return results.hstack(pl.DataFrame(rows, schema=WINNER_SCHEMA, orient="row"))


def _winners_trials(
    records: Records, outcomes: pl.DataFrame, results: pl.DataFrame
) -> Iterator[tuple[tuple[object, ...], list[RankedTrial]]]:
    """The trials that came to their end, by id, of every study and goal that has a winner."""
    key = [*STUDY_COLUMNS, "goal"]
    names = [name for name in records.metaparameters if name in outcomes.columns]
    ended = outcomes.filter(pl.col("outcome") != Outcome.INCOMPLETE.value).join(
        results.filter(pl.col("trial_id").is_not_null()).select(key), on=key, how="semi", maintain_order="left"
    )
    for (*workload, text), group in ended.group_by(*WORKLOAD_COLUMNS, "goal", maintain_order=True):
        goal = Goal.parse(text)
        found = find_improvements(records, WorkloadName(*map(str, workload)), goal.metric, goal.maximize)
        best = pl.Series("best", found.best_values()[found.places(group)].tolist(), dtype=pl.Float64)
        scored = group.select("batch_size", "trial_id", "steps_to_goal", best, "outcome", *names).sort("trial_id")
        for (size,), study in scored.group_by("batch_size"):
            yield (*workload, size, text), [_ranked(row, names) for row in study.iter_rows(named=True)]


def _ranked(row: Mapping[str, Any], names: Sequence[str]) -> RankedTrial:
    score = goal_score(row["steps_to_goal"], row["best"], diverged=row["outcome"] == Outcome.INFEASIBLE.value)
    return RankedTrial({name: row[name] for name in names if row[name] is not None}, score)


def winner_spacing(records: Records, results: pl.DataFrame) -> pl.DataFrame:
    """The frame of ``steps_to_result`` with ``spacing``: steps from the winner's measurement before to the winning one.

    Steps to result are known up to this spacing only: the goal was passed somewhere in between.
    """
    frames = []
    for key, group in results.group_by("dataset", "model", "optimizer", maintain_order=True):
        wanted = group.filter(pl.col("trial_id").is_not_null()).select("batch_size", "trial_id", "steps").unique()
        source = records.sources[WorkloadName(*(str(part) for part in key))]().select("batch_size", "trial_id", "step")
        before = (
            source.join(wanted.lazy(), on=["batch_size", "trial_id"])
            .filter(pl.col("step") < pl.col("steps"))
            .group_by("batch_size", "trial_id", "steps")
            .agg(pl.col("step").max().alias("before"))
            .collect()
        )
        joined = group.join(before, on=["batch_size", "trial_id", "steps"], how="left", maintain_order="left")
        spacing = pl.col("steps") - pl.col("before").fill_null(0)
        frames.append(joined.with_columns(spacing.cast(pl.Int64).alias("spacing")).drop("before"))
    return pl.concat(frames) if frames else results.with_columns(pl.lit(None, dtype=pl.Int64).alias("spacing"))
