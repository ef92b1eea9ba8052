"""Notes: rows of a frame on missing data, and the notes of a panel made from them.

A row without a batch size has only a note. A row with a batch size may have one as well, about itself.
"""

from collections.abc import Callable, Mapping

import polars as pl

from batchscale.errors import AnalysisError, BatchscaleError
from batchscale.figures.names import goal_label
from batchscale.figures.study_columns import edge_notes
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

Schema = Mapping[str, type[pl.DataType]]

NOT_REACHED = "goal not reached"
WORKLOAD_COLUMNS: Schema = {"dataset": pl.String, "model": pl.String, "optimizer": pl.String}


class MissingDataError(AnalysisError):
    """Data that a panel needs is missing from the records; the message becomes the panel's note."""


def rows_or_note(schema: Schema, values: Mapping[str, object], make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of a panel; on an error one row with its message and the panel's ``values``."""
    try:
        return make().select(pl.col(name).cast(kind) for name, kind in schema.items())
    except BatchscaleError as error:
        return note_frame(schema, str(error), **values)


def find_studies(
    records: Records, workload: WorkloadName, batch_size: int | None = None, first_trials: int | None = None
) -> Records:
    """Return the records of a workload (at a batch size), or of its first COMPLETE trials.

    Raises:
        MissingDataError: There are none.
    """
    selected = records.workload(workload)
    if batch_size is not None:
        selected = selected.filter(batch_size=batch_size)
    if selected.studies.is_empty():
        raise MissingDataError(
            f"no records of {workload}" + ("" if batch_size is None else f" at batch size {batch_size:,}")
        )
    return selected if first_trials is None else selected.first_trials(first_trials)


def note_frame(schema: Schema, note: str, **values: object) -> pl.DataFrame:
    """Return one row with a note and values of other columns."""
    row = {**values, "note": note}
    return pl.DataFrame([{name: row.get(name) for name in schema}], schema=schema)


def workload_values(workload: WorkloadName) -> dict[str, object]:
    """Return the columns that name a workload."""
    return {"dataset": workload.dataset, "model": workload.model, "optimizer": workload.optimizer}


def literals(values: Mapping[str, object]) -> list[pl.Expr]:
    """Return columns that have the same value in every row."""
    return [pl.lit(value, dtype=None if value is not None else pl.String).alias(name) for name, value in values.items()]


def panel_notes(frame: pl.DataFrame) -> list[str]:
    """Return a panel's notes on missing data and on best trials at an edge; with the series if there are several."""
    return list(dict.fromkeys([*_lack_notes(frame), *edge_notes(frame)]))


def goal_notes(frame: pl.DataFrame) -> list[str]:
    """Return the note on the goal of all panels; empty if they have several."""
    goals = frame["goal"].drop_nulls().unique()
    return [f"goal: {goal_label(Goal.parse(goals[0]))}"] if len(goals) == 1 else []


def empty_reason(frame: pl.DataFrame, otherwise: str = "there is nothing to draw") -> str:
    """Return the reason why a panel is empty, from its notes or else ``otherwise``, and its notes on edges."""
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
