"""Studies of runs whose best trial for the figure's goal lies at an edge of its search space: a column of every frame.

Published records do not say how often and where they were searched, so nothing is flagged there.
"""

import functools
from collections.abc import Mapping, Sequence

import polars as pl

from batchscale.analysis.curve_analysis import stored_goal
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of, winner_edges
from batchscale.errors import BatchscaleError
from batchscale.records.frames import STUDY_COLUMNS, WORKLOAD_COLUMNS, Records
from batchscale.records.metadata.columns import METADATA
from batchscale.records.summary import EDGE_WORDS
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

EDGE = "edge"
"""The column: the ends that the best trial lies at ("learning_rate high"); null where it lies inside."""

AT_EDGE = f"best trial {EDGE_WORDS}"


def join_frames(frames: Sequence[pl.DataFrame], schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """The rows of all panels, made by ``with_edges``, as one frame of this schema with the column ``edge`` behind."""
    return pl.concat(frames) if frames else pl.DataFrame(schema={**schema, EDGE: pl.String})


def with_edges(
    frame: pl.DataFrame, records: Records, goal: Goal | None, first_trials: int | None = None
) -> pl.DataFrame:
    """A frame that names its studies, with the column ``edge``.

    Args:
        frame: The rows of a panel.
        records: Where its studies are.
        goal: Whose best trials are looked at; None, where a figure is about no goal: that of the studies' run.
        first_trials: How many of each study's first COMPLETE trials count; None: all.
    """
    schema = {name: kind for name, kind in records.studies.schema.items() if name in STUDY_COLUMNS}
    rows: list[tuple[object, ...]] = []
    for workload in frame.drop_nulls("batch_size").select(WORKLOAD_COLUMNS).unique().iter_rows():
        chosen = records.workload(WorkloadName(*workload))
        counted = chosen if first_trials is None else chosen.first_trials(first_trials)
        rows += counted.cache.get(("edges", goal), functools.partial(_ends, counted, goal))
    edges = pl.DataFrame(rows, schema=schema | {EDGE: pl.String()}, orient="row")
    return frame.join(edges, on=STUDY_COLUMNS, how="left", maintain_order="left")


def _ends(records: Records, goal: Goal | None) -> list[tuple[object, ...]]:
    """The studies of one workload that are at an edge, each with its ends."""
    if records.studies[METADATA].is_null().all():
        return []
    (name,) = records.workloads
    asked = stored_goal(records, name) if goal is None else goal
    if asked is None:
        return []
    try:
        outcomes = trial_outcomes(records, asked)
    except BatchscaleError:
        return []  # no such metric, of which the panels speak
    flagged = winner_edges(records, outcomes, results_of(outcomes)).filter("at_edge")
    runs = records.studies.filter(pl.col(METADATA).is_not_null()).select(STUDY_COLUMNS)
    return flagged.join(runs, on=STUDY_COLUMNS, how="semi").select(*STUDY_COLUMNS, EDGE).rows()


def at_edge(points: pl.DataFrame) -> pl.DataFrame:
    """The points whose study is at an edge."""
    return points.drop_nulls(EDGE) if EDGE in points.columns else points.clear()


def edge_notes(frame: pl.DataFrame) -> list[str]:
    """What a panel says of studies at an edge; the series is named where the panel has several workloads."""
    flagged = at_edge(frame)
    if flagged.is_empty():
        return []
    several = "series" in frame.columns and frame.select(STUDY_COLUMNS[:-1]).drop_nulls().n_unique() > 1
    if not several and frame["batch_size"].drop_nulls().n_unique() == 1:
        return [f"best trial at an edge: {flagged[EDGE][0]}"]
    series = pl.col("series") if several else pl.lit("")
    notes = []
    for (label,), rows in flagged.group_by(series.alias("label"), maintain_order=True):
        sizes = ", ".join(f"{size:,}" for size in rows["batch_size"].unique().sort())
        words = f"{AT_EDGE} at batch size {sizes}"
        notes.append(f"{label}: {words}" if label else words)
    return notes
