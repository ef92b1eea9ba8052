"""Notes: how a frame says what is missing, and how a panel repeats it.

A row without a batch size carries only a note. A row with a batch size may carry one as well, about itself.
"""

from collections.abc import Callable, Mapping

import polars as pl

from batchscale.errors import AnalysisError, BatchscaleError
from batchscale.figures.edges import edge_notes
from batchscale.figures.names import goal_label
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

Schema = Mapping[str, type[pl.DataType]]

NOT_REACHED = "goal not reached"
WORKLOAD_COLUMNS: Schema = {"dataset": pl.String, "model": pl.String, "optimizer": pl.String}


class LackingError(AnalysisError):
    """What a panel would need and the records do not have; it becomes the panel's note."""


def rows_or_note(schema: Schema, known: Mapping[str, object], make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """The rows of a panel; where they cannot be made, one row that says why, with what is ``known`` about the panel."""
    try:
        return make().select(pl.col(name).cast(kind) for name, kind in schema.items())
    except BatchscaleError as error:
        return note_frame(schema, str(error), **known)


def find_studies(
    records: Records, workload: WorkloadName, batch_size: int | None = None, first_trials: int | None = None
) -> Records:
    """The records of a workload (at a batch size), or of its first COMPLETE trials.

    Raises:
        LackingError: there are none.
    """
    chosen = records.workload(workload)
    if batch_size is not None:
        chosen = chosen.filter(batch_size=batch_size)
    if chosen.studies.is_empty():
        raise LackingError(
            f"no records of {workload}" + ("" if batch_size is None else f" at batch size {batch_size:,}")
        )
    return chosen if first_trials is None else chosen.first_trials(first_trials)


def note_frame(schema: Schema, note: str, **values: object) -> pl.DataFrame:
    """One row that says what is missing, with what is known about where."""
    row = {**values, "note": note}
    return pl.DataFrame([{name: row.get(name) for name in schema}], schema=schema)


def workload_values(workload: WorkloadName) -> dict[str, object]:
    """The columns that name a workload."""
    return {"dataset": workload.dataset, "model": workload.model, "optimizer": workload.optimizer}


def literals(values: Mapping[str, object]) -> list[pl.Expr]:
    """What is known about a panel as columns that have the same value in every row."""
    return [pl.lit(value, dtype=None if value is not None else pl.String).alias(name) for name, value in values.items()]


def panel_notes(frame: pl.DataFrame) -> list[str]:
    """What a panel lacks, and which best trials lie at an edge; the series is named where there are several."""
    return list(dict.fromkeys([*_lack_notes(frame), *edge_notes(frame)]))


def goal_notes(frame: pl.DataFrame) -> list[str]:
    """The goal of all panels in words; nothing where they have several."""
    goals = frame["goal"].drop_nulls().unique()
    return [f"goal: {goal_label(Goal.parse(goals[0]))}"] if len(goals) == 1 else []


def missing_words(frame: pl.DataFrame, otherwise: str = "there is nothing to draw") -> str:
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
