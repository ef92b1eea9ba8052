"""What stands behind a winner: its distance to the edges of its space, its study's searches, its evaluation spacing.

The flags made here go into every table and chart.
"""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from batchscale.records.frames import STUDY_COLUMNS, Records
from batchscale.records.own_facts import own_facts, stored_edges, stored_searches
from batchscale.search import DEFAULT_MARGIN, joint_distances
from batchscale.spec import SearchSpace, WorkloadName

WINNER_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "edge_distance": pl.Float64,  # to the nearest end that has something beyond it, as a share of the range
    "edge": pl.String,  # "learning_rate high": the nearest end, or all ends that the winner is at
    "at_edge": pl.Boolean,  # as the run judged it, or nearer than the margin; null without a winner
    "searches": pl.Int64,  # how often the study was searched; 1 where nothing is said
    "extra_searches": pl.Boolean,  # more than once: an extra bite of the apple (section 5.1)
}


def winner_edges(records: Records, results: pl.DataFrame, margin: float = DEFAULT_MARGIN) -> pl.DataFrame:
    """The frame of ``steps_to_result`` (of whole studies) with the columns of ``WINNER_SCHEMA`` behind it.

    For the goal that a study was run for, what the run itself found says what is at an edge. For other goals, and where
    it found nothing, it is what lies nearer than ``margin`` to an end that no search of the study reached beyond.
    DISCRETE metaparameters have no edge, and an end at which the metaparameter itself ends (momentum 0) is none.
    """
    studies = {
        tuple(row[:4]): row[4:] for row in records.studies.select(*STUDY_COLUMNS, "parameter_configs", "extra").rows()
    }
    names = [name for name in records.metaparameters if name in results.columns]
    rows: list[tuple[object, ...]] = []
    for row in results.iter_rows(named=True):
        configs, extra = studies[tuple(row[name] for name in STUDY_COLUMNS)]
        own = own_facts(extra)
        count = max(len(stored_searches(own)), 1)
        if row["trial_id"] is None:
            rows.append((None, None, None, count, count > 1))
            continue
        values = {name: row[name] for name in names if row[name] is not None}
        near = [edge for edge in joint_distances(_spaces(own, configs), values) if not edge.natural]
        found = stored_edges(own) if own.get("goal") == row["goal"] else None
        if found is None:
            found = [f"{edge.parameter} {edge.side}" for edge in near if edge.distance < margin]
        shown = found or [f"{edge.parameter} {edge.side}" for edge in near[:1]]
        distance = near[0].distance if near else None
        rows.append((distance, ", ".join(shown) or None, bool(found), count, count > 1))
    return results.hstack(pl.DataFrame(rows, schema=WINNER_SCHEMA, orient="row"))


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


def _spaces(own: Mapping[str, Any], configs: str) -> list[SearchSpace]:
    """The spaces of all searches of a study; the study's own where they are not listed."""
    spaces = [search["space"] for search in stored_searches(own) if search.get("space") is not None]
    return [SearchSpace.from_json(space) for space in spaces or [json.loads(configs)]]
