"""Tables of format 1 read as today's: there our own facts still stood in the column ``extra``, as JSON."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from batchscale.errors import RecordsError
from batchscale.records.metadata.base import OWN_KEY
from batchscale.records.metadata.columns import (
    METADATA,
    STUDY_METADATA,
    TRIAL_METADATA,
    study_metadata_row,
    trial_metadata_row,
)
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import TrialMetadata


def upgrade_studies(frame: pl.LazyFrame, where: str) -> pl.LazyFrame:
    """The studies with their facts in a column of their own."""

    def read(own: object) -> dict[str, Any] | None:
        return study_metadata_row(StudyMetadata.from_json(own, where))

    return _with_facts(frame, read, STUDY_METADATA, where)


def upgrade_trials(frame: pl.LazyFrame, where: str) -> pl.LazyFrame:
    """The trials with their facts in a column of their own; those that a query leaves out are never parsed."""

    def read(own: object) -> dict[str, Any] | None:
        return trial_metadata_row(TrialMetadata.from_json(own, where))

    return _with_facts(frame, read, TRIAL_METADATA, where)


def _with_facts(
    frame: pl.LazyFrame,
    read: Callable[[object], dict[str, Any] | None],
    schema: Mapping[str, pl.DataType],
    where: str,
) -> pl.LazyFrame:
    kind = pl.Struct(schema)

    def facts(extras: pl.Series) -> pl.Series:
        return pl.Series([_row(text, read, where) for text in extras], dtype=kind)

    def others(extras: pl.Series) -> pl.Series:
        return pl.Series([_without_own(text, where) for text in extras], dtype=pl.String)

    column = pl.col("extra")
    names = [
        name for before in frame.collect_schema() for name in ((METADATA, before) if before == "extra" else (before,))
    ]
    return frame.with_columns(
        column.map_batches(facts, return_dtype=kind, is_elementwise=True).alias(METADATA),
        column.map_batches(others, return_dtype=pl.String, is_elementwise=True),
    ).select(names)


def _row(text: str | None, read: Callable[[object], dict[str, Any] | None], where: str) -> dict[str, Any] | None:
    data = _parse(text, where)
    return read(data[OWN_KEY]) if OWN_KEY in data else None


def _without_own(text: str | None, where: str) -> str | None:
    data = _parse(text, where)
    if OWN_KEY not in data:
        return text
    return json.dumps({key: value for key, value in data.items() if key != OWN_KEY}, sort_keys=True)


def _parse(text: str | None, where: str) -> dict[str, Any]:
    if text is None or text == "{}":
        return {}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise RecordsError(f"{where}: the column extra has JSON objects. Import the source again.")
    return data
