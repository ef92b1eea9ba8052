"""Frames of charts: their rows or a note on missing data, and columns about studies.

A row without a batch size has only a note. A row with a batch size may have one as well, about itself.
Best trials at an edge of their search space are flagged in studies of runs only: published records lack the searches.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from batchscale.analysis.curve_analysis import stored_goal
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of, winner_edges
from batchscale.analysis.units import EXAMPLES, TOKENS, SizeUnit, unit_of
from batchscale.errors import AnalysisError, BatchscaleError
from batchscale.figures.names import goal_label
from batchscale.records.frames import STUDY_COLUMNS, TRIAL_SCHEMA, WORKLOAD_COLUMNS, Records, fixed_values
from batchscale.records.metadata.columns import METADATA
from batchscale.records.metadata.study import EDGE_WORDS
from batchscale.records.model import Status
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

Schema = Mapping[str, type[pl.DataType]]

NOT_REACHED = "goal not reached"
WORKLOAD_SCHEMA: Schema = {"dataset": pl.String, "model": pl.String, "optimizer": pl.String}

EDGE = "edge"
"""The column: the ends that the best trial lies at ("learning_rate high"); null where it lies inside."""

AT_EDGE = f"best trial {EDGE_WORDS}"

BOUND = "bound"
"""The column: True if trials ended before the steps of a row, so that longer training might have done better."""

BOUND_WORDS = "hollow: trials were stopped before that (race, goal); trained on, they might have done better"


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
    """Return the note on the goals of some rows; none if their frame has no column of goals."""
    if frame.schema.get("goal") != pl.String:
        return []
    goals = [Goal.parse(text) for text in frame["goal"].drop_nulls().unique(maintain_order=True)]
    if len(goals) > 1 and len({(goal.metric, goal.maximize) for goal in goals}) == 1:
        return [f"goals: {goal_label(goals[0])}, {', '.join(f'{goal.value:g}' for goal in goals[1:])}"]
    return [f"goal{'s' * (len(goals) > 1)}: {', '.join(map(goal_label, goals))}"] if goals else []


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
        sizes = _list(rows)
        words = f"{note} at batch size {sizes}" if sizes and note == NOT_REACHED else str(note)
        notes.append(f"{series}: {words}" if several and series else words)
    return list(dict.fromkeys(notes))


def _list(rows: pl.DataFrame) -> str:
    """Return the batch sizes of rows as a list."""
    unit = panel_unit(rows)
    sizes = ", ".join(unit.short(size) for size in rows["batch_size"].drop_nulls().unique().sort())
    return f"{sizes} tokens" if sizes and unit != EXAMPLES else sizes


def join_frames(frames: Sequence[pl.DataFrame], schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Return the rows of all panels, made by ``with_edges``, as one frame of this schema and the column ``edge``."""
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame(schema={**schema, EDGE: pl.String})


def with_unit(frame: pl.DataFrame, unit: SizeUnit) -> pl.DataFrame:
    """Return a frame with the column ``tokens_per_example`` if the tokens of an example are known."""
    tokens = unit.tokens_per_example
    return frame if tokens is None else frame.with_columns(pl.lit(tokens, dtype=pl.Int64).alias(TOKENS))


def panel_unit(points: pl.DataFrame) -> SizeUnit:
    """Return the unit of a panel's batch sizes: tokens if all its points have the same tokens of an example."""
    stated = points[TOKENS].unique() if TOKENS in points.columns else pl.Series([None])
    return EXAMPLES if len(stated) != 1 or stated[0] is None else SizeUnit(int(stated[0]))


def with_edges(
    frame: pl.DataFrame, records: Records, goal: Goal | None, first_trials: int | None = None
) -> pl.DataFrame:
    """Return a frame that names its studies, with the column ``edge``, and ``tokens_per_example`` where it is known.

    Args:
        frame: The rows of a panel.
        records: The records of its studies.
        goal: The goal that decides the best trials; None: that of the studies' run.
        first_trials: Count only this many of each study's first COMPLETE trials; None: all.
    """
    schema = {name: kind for name, kind in records.studies.schema.items() if name in STUDY_COLUMNS}
    rows: list[tuple[object, ...]] = []
    tokens: list[tuple[object, ...]] = []
    for workload in frame.drop_nulls("batch_size").select(WORKLOAD_COLUMNS).unique().iter_rows():
        selected = records.workload(WorkloadName(*workload))
        tokens += [(*workload, stated)] if (stated := unit_of(selected).tokens_per_example) else []
        counted = selected if first_trials is None else selected.first_trials(first_trials)
        rows += counted.cache.get(("edges", goal), functools.partial(_ends, counted, goal))
    edges = pl.DataFrame(rows, schema=schema | {EDGE: pl.String()}, orient="row")
    marked = frame.join(edges, on=STUDY_COLUMNS, how="left", maintain_order="left")
    if not tokens:
        return marked
    units = pl.DataFrame(tokens, schema={**dict.fromkeys(WORKLOAD_COLUMNS, pl.String), TOKENS: pl.Int64}, orient="row")
    return marked.join(units, on=WORKLOAD_COLUMNS, how="left", maintain_order="left")


def _ends(records: Records, goal: Goal | None) -> list[tuple[object, ...]]:
    """Return the studies of one workload that are at an edge, each with its ends."""
    if records.studies[METADATA].is_null().all():
        return []
    (name,) = records.workloads
    goal = stored_goal(records, name) if goal is None else goal
    if goal is None:
        return []
    try:
        outcomes = trial_outcomes(records, goal)
    except BatchscaleError:
        return []  # no such metric: the panels have a note on it
    flagged = winner_edges(records, outcomes, results_of(outcomes)).filter("at_edge")
    runs = records.studies.filter(pl.col(METADATA).is_not_null()).select(STUDY_COLUMNS)
    return flagged.join(runs, on=STUDY_COLUMNS, how="semi").select(*STUDY_COLUMNS, EDGE).rows()


def at_edge(points: pl.DataFrame) -> pl.DataFrame:
    """Return the points whose study is at an edge."""
    return points.drop_nulls(EDGE) if EDGE in points.columns else points.clear()


def edge_notes(frame: pl.DataFrame) -> list[str]:
    """Return the notes of a panel on studies at an edge; they name the series if the panel has several workloads."""
    flagged = at_edge(frame)
    if flagged.is_empty():
        return []
    several = "series" in frame.columns and frame.select(STUDY_COLUMNS[:-1]).drop_nulls().n_unique() > 1
    if not several and frame["batch_size"].drop_nulls().n_unique() == 1:
        return [f"best trial at an edge: {flagged[EDGE][0]}"]
    series = pl.col("series") if several else pl.lit("")
    notes = []
    for (label,), rows in flagged.group_by(series.alias("label"), maintain_order=True):
        note = f"{AT_EDGE} at batch size {_list(rows)}"
        notes.append(f"{label}: {note}" if label else note)
    return notes


def with_fixed(trials: pl.DataFrame, records: Records) -> pl.DataFrame:
    """Return rows of trials with the metaparameters that their studies held fixed, where the rows have no value."""
    rows = [
        (*study, str(name), float(value))
        for study, held in fixed_values(records).items()
        for name, value in held.items()
        if name not in TRIAL_SCHEMA
    ]
    for name in sorted({row[-2] for row in rows}):
        schema = {column: trials.schema[column] for column in STUDY_COLUMNS} | {"fixed_value": pl.Float64()}
        values = [(*study, value) for *study, other, value in rows if other == name]
        held = pl.DataFrame(values, schema=schema, orient="row")
        recorded = pl.col(name) if name in trials.columns else pl.lit(None, dtype=pl.Float64)
        trials = (
            trials.join(held, on=STUDY_COLUMNS, how="left", maintain_order="left")
            .with_columns(recorded.fill_null(pl.col("fixed_value")).alias(name))
            .drop("fixed_value")
        )
    return trials


def first_measured(records: Records, workload: WorkloadName) -> dict[int, int]:
    """Return per batch size the first step after the start at which a COMPLETE trial was measured."""
    complete = records.workload(workload).filter(status=Status.COMPLETE.value)
    steps = complete.measurements_of(workload).select("batch_size", "step").filter(pl.col("step") > 0)
    return dict(steps.group_by("batch_size").agg(pl.col("step").min()).collect().rows())


def ended_first(records: Records, workload: WorkloadName, by: str | None = None) -> pl.DataFrame:
    """Return per batch size (and value of a metaparameter) the steps of the COMPLETE trial that ended first.

    Returns:
        The columns ``batch_size``, the metaparameter, ``shortest``; only studies with a rule that ends trials early.
    """
    selected = records.workload(workload)
    complete = selected.trials.filter(pl.col("status") == Status.COMPLETE.value)
    ended = complete.group_by("batch_size", *([by] if by else [])).agg(pl.col("steps").min().alias("shortest"))
    early = selected.studies.filter("early_stopping").select("batch_size")
    return ended.join(early, on="batch_size", how="semi")
