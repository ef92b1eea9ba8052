"""What stands behind a winner: its distance to the edges of its space, its study's searches, its evaluation spacing.

The flags made here go into every table and chart.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from batchscale.records.frames import STUDY_COLUMNS, Records
from batchscale.records.model import OWN_KEY
from batchscale.search import DEFAULT_MARGIN, edge_distances
from batchscale.spec import SearchSpace, WorkloadName

WINNER_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "edge_distance": pl.Float64,  # to the nearest end that has something beyond it, as a share of the range
    "edge": pl.String,  # "learning_rate high"
    "at_edge": pl.Boolean,  # nearer than the margin; null without a winner
    "searches": pl.Int64,  # how often the study was searched; 1 where nothing is said
    "extra_searches": pl.Boolean,  # more than once: an extra bite of the apple (section 5.1)
}


def winner_edges(records: Records, results: pl.DataFrame, margin: float = DEFAULT_MARGIN) -> pl.DataFrame:
    """The frame of ``steps_to_result`` with the columns of ``WINNER_SCHEMA`` behind it.

    A winner is judged by the space of the search it belongs to. DISCRETE metaparameters have no edge, and an end at
    which the metaparameter itself ends (momentum 0) is none.
    """
    studies = {
        tuple(row[:4]): row[4:] for row in records.studies.select(*STUDY_COLUMNS, "parameter_configs", "extra").rows()
    }
    names = [name for name in records.metaparameters if name in results.columns]
    rows: list[tuple[object, ...]] = []
    for row in results.iter_rows(named=True):
        configs, extra = studies[tuple(row[name] for name in STUDY_COLUMNS)]
        searches = own_facts(extra).get("searches")
        searches = searches if isinstance(searches, list) else []
        count = max(len(searches), 1)
        if row["trial_id"] is None:
            rows.append((None, None, None, count, count > 1))
            continue
        space = _space_of(row["trial_id"], searches) or SearchSpace.from_json(json.loads(configs))
        values = {name: row[name] for name in names if row[name] is not None}
        near = [edge for edge in edge_distances(space, values) if not edge.natural]
        first = near[0] if near else None
        text = f"{first.parameter} {first.side}" if first else None
        rows.append(
            (first.distance if first else None, text, first is not None and first.distance < margin, count, count > 1)
        )
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


def own_facts(extra: str | None) -> dict[str, Any]:
    """What batchscale itself wrote into a study.json or metadata.json, from its ``extra`` column."""
    data = json.loads(extra) if extra else {}
    own = data.get(OWN_KEY) if isinstance(data, dict) else None
    return own if isinstance(own, dict) else {}


def _space_of(trial_id: int, searches: list[Any]) -> SearchSpace | None:
    """The space of the search that a trial belongs to, by the first ids that each search's ranges have."""
    best: tuple[float, Any] = (-math.inf, None)
    for search in searches:
        if not isinstance(search, dict):
            continue
        ranges = search.get("ranges") or [[search.get("first_trial_id"), 0]]
        for first in (part[0] for part in ranges):
            if isinstance(first, int) and best[0] < first <= trial_id:
                best = (first, search.get("space"))
    return None if best[1] is None else SearchSpace.from_json(best[1])
