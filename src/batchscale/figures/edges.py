"""Studies whose run ended with the best trial at an edge of its search space: a column of every figure's data.

It is what the run found at its end, for its own goal, whatever goal the figure is about. Published records have none,
so nothing is flagged there.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from batchscale.records.facts.columns import FACTS
from batchscale.records.frames import STUDY_COLUMNS, Records

EDGE = "edge"
"""The column: the ends that the best trial was left at ("learning_rate high"); null where it lies inside."""

AT_EDGE = "best trial at an edge of its search space"


def join_frames(
    frames: Sequence[pl.DataFrame], schema: Mapping[str, type[pl.DataType]], records: Records
) -> pl.DataFrame:
    """The rows of all panels as one frame of this schema, with the column ``edge`` behind."""
    return with_edges(pl.concat(frames) if frames else pl.DataFrame(schema=schema), records)


def with_edges(frame: pl.DataFrame, records: Records) -> pl.DataFrame:
    """A frame that names its studies, with the column ``edge``."""
    rows = [
        (*study, ", ".join(ends or []) or None)
        for *study, ends in records.studies.select(*STUDY_COLUMNS, pl.col(FACTS).struct.field("at_edge")).iter_rows()
    ]
    schema = {name: kind for name, kind in records.studies.schema.items() if name in STUDY_COLUMNS}
    edges = pl.DataFrame(rows, schema=schema | {EDGE: pl.String()}, orient="row").drop_nulls(EDGE)
    return frame.join(edges, on=STUDY_COLUMNS, how="left", maintain_order="left")


def at_edge(points: pl.DataFrame) -> pl.DataFrame:
    """The points whose study was left at an edge."""
    return points.drop_nulls(EDGE) if EDGE in points.columns else points.clear()


def edge_notes(frame: pl.DataFrame) -> list[str]:
    """What a panel says of studies left at an edge; the series is named where the panel has several workloads."""
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
