"""Notes: how a frame says what is missing, and how a panel repeats it.

A row without a batch size carries only a note. A row with a batch size may carry one as well, about itself.
"""

from collections.abc import Mapping

import polars as pl

from batchscale.figures.edges import edge_notes
from batchscale.spec import WorkloadName

NOT_REACHED = "goal not reached"


def note_frame(schema: Mapping[str, type[pl.DataType]], note: str, **values: object) -> pl.DataFrame:
    """One row that says what is missing, with what is known about where."""
    row = {**values, "note": note}
    return pl.DataFrame([{name: row.get(name) for name in schema}], schema=schema)


def workload_values(workload: WorkloadName) -> dict[str, object]:
    """The columns that name a workload."""
    return {"dataset": workload.dataset, "model": workload.model, "optimizer": workload.optimizer}


def workload_literals(workload: WorkloadName) -> list[pl.Expr]:
    """The columns that name a workload, for a frame of one."""
    return [pl.lit(value).alias(name) for name, value in workload_values(workload).items()]


def panel_notes(frame: pl.DataFrame) -> list[str]:
    """What a panel lacks, and which best trials lie at an edge; the series is named where there are several."""
    return list(dict.fromkeys([*_lack_notes(frame), *edge_notes(frame)]))


def missing_words(frame: pl.DataFrame, otherwise: str) -> str:
    """Why a panel is empty, in the notes' words or else in these, and which best trials lie at an edge."""
    return "; ".join([*(_lack_notes(frame) or [otherwise]), *edge_notes(frame)])


def _lack_notes(frame: pl.DataFrame) -> list[str]:
    has_series = "series" in frame.columns
    several = has_series and frame["series"].n_unique() > 1
    named = frame.with_columns(pl.lit("").alias("series") if not has_series else pl.col("series").fill_null("")).filter(
        pl.col("note").is_not_null()
    )
    notes: list[str] = []
    for (series, note), rows in named.group_by("series", "note", maintain_order=True):
        sizes = ", ".join(f"{size:,}" for size in rows["batch_size"].drop_nulls().unique().sort())
        words = f"{note} at batch size {sizes}" if sizes and note == NOT_REACHED else str(note)
        notes.append(f"{series}: {words}" if several and series else words)
    return list(dict.fromkeys(notes))
