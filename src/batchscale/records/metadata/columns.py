"""Our own metadata as one struct column of the studies and of the trials frame, null where a file has none.

A struct, because its fields are real columns (typed, stored apart, selected by name) and yet never collide with a
metaparameter, whose columns stand beside it: ``pl.col("facts").struct.field("step_time_s")``. The columns of a trial
follow from the fields of its classes; those of a study are listed here.
"""

import dataclasses
import functools
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from batchscale.records.metadata.base import OTHER, plain_type, to_json
from batchscale.records.metadata.study import SearchMetadata, StudyMetadata
from batchscale.records.metadata.trial import Hardware, Timing, TrialMetadata
from batchscale.spec.adaptive import RoundChoice, list_rounds
from batchscale.spec.redaction import redact_stored

METADATA = "facts"
"""The name of the column, in frames and in tables on disk."""

_COLUMN_TYPES: Mapping[Any, pl.DataType] = {
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
    bool: pl.Boolean(),
    tuple: pl.List(pl.String()),
}


def _searches(study: StudyMetadata) -> list[SearchMetadata]:
    """Return the searches without the confirmations of their best trials."""
    return [search for search in study.searches if not search.confirms]


_STUDY: Mapping[str, tuple[pl.DataType, Callable[[StudyMetadata], Any]]] = {
    "code_version": (pl.String(), lambda study: study.code_version),
    "spec_hash": (pl.String(), lambda study: study.spec_hash),
    "goal": (pl.String(), lambda study: study.goal),
    "stop_rule": (pl.String(), lambda study: study.stop_rule),
    "trials": (pl.Int64(), lambda study: study.trials),  # requested
    "finishers": (pl.Int64(), lambda study: study.finishers),
    "seed": (pl.Int64(), lambda study: study.seed),
    "fixed": (pl.String(), lambda study: _object_text(study.fixed)),
    "evaluation": (pl.String(), lambda study: _object_text(study.evaluation)),
    "num_train_examples": (pl.Int64(), lambda study: study.num_train_examples),
    "tokens_per_example": (pl.Int64(), lambda study: study.tokens_per_example),
    "budgets": (pl.List(pl.Int64()), lambda study: list(study.budgets)),
    "population": (pl.Int64(), lambda study: study.population),
    "edge_margin": (pl.Float64(), lambda study: study.edge_margin),
    # of each search: its space as parameter_configs, and the reason for it
    "spaces": (pl.List(pl.String()), lambda study: [_object_text(each.space.to_json()) for each in _searches(study)]),
    "reasons": (pl.List(pl.String()), lambda study: [search.reason for search in _searches(study)]),
    # of each round of an adaptive experiment that concerns it: the choice as a JSON object
    "choices": (
        pl.List(pl.String()),
        lambda study: [_object_text(to_json(choice)) for choice in study.choices] or None,
    ),
    # null until the study has ended
    "goal_reached": (pl.Boolean(), lambda study: study.result.goal_reached if study.result else None),
    "at_edge": (pl.List(pl.String()), lambda study: [*map(str, study.result.at_edge)] if study.result else None),
    "short": (pl.Boolean(), lambda study: study.result.short if study.result else None),
    "trainer": (pl.String(), lambda study: study.trainer.name if study.trainer else None),
    "trainer_version": (pl.String(), lambda study: study.trainer.version if study.trainer else None),
    "experiment": (pl.String(), lambda study: redact_stored(study.experiment)),
}


def columns_of(kind: type) -> dict[str, pl.DataType]:
    """Return a column for each field of a class; a field that is an object gives its own fields in its place."""
    columns: dict[str, pl.DataType] = {}
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        inner = plain_type(hints[field.name])
        if dataclasses.is_dataclass(inner):
            columns |= columns_of(inner)  # type: ignore[arg-type]
        elif field.name != OTHER:
            columns[field.name] = _COLUMN_TYPES[typing.get_origin(inner) or inner]
    return columns


STUDY_METADATA: Mapping[str, pl.DataType] = {name: kind for name, (kind, _) in _STUDY.items()}
TRIAL_METADATA: Mapping[str, pl.DataType] = columns_of(TrialMetadata)

_PLAIN_FIELDS = tuple(
    field.name for field in dataclasses.fields(TrialMetadata) if field.name not in ("timing", "hardware", OTHER)
)
_NO_TIMING, _NO_HARDWARE = vars(Timing()), vars(Hardware())


def study_metadata_row(metadata: StudyMetadata | None) -> dict[str, Any] | None:
    """Return the metadata of a study as a value of the column."""
    return None if metadata is None else {name: value(metadata) for name, (_, value) in _STUDY.items()}


def stored_choices(studies: pl.DataFrame) -> tuple[RoundChoice, ...]:
    """Return the rounds of an adaptive experiment that its studies store, each once, oldest first; none if it is fixed.

    Args:
        studies: The rows of one workload in a frame of studies.
    """
    texts = studies.select(pl.col(METADATA).struct.field("choices")).to_series().drop_nulls()
    return list_rounds([_choice_type().validate_python(json.loads(text)) for text in study] for study in texts)


@functools.cache
def _choice_type() -> TypeAdapter[RoundChoice]:
    return TypeAdapter(RoundChoice)


def trial_metadata_row(metadata: TrialMetadata | None) -> dict[str, Any] | None:
    """Return the metadata of a trial as a value of the column."""
    if metadata is None:
        return None
    values = vars(metadata)
    row = {name: values[name] for name in _PLAIN_FIELDS}
    row |= vars(metadata.timing) if metadata.timing else _NO_TIMING
    row |= vars(metadata.hardware) if metadata.hardware else _NO_HARDWARE
    row["device_kind"] = row["device_kind"] or None
    return row


def _object_text(data: Mapping[str, Any]) -> str:
    return json.dumps(dict(data), sort_keys=True)
