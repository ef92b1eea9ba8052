"""Tables of format 1 read as today's: there our own facts still stood in the column ``extra``, as JSON."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from batchscale.errors import RecordsError
from batchscale.records.facts.columns import FACTS, STUDY_FACTS, TRIAL_FACTS, study_facts_row, trial_facts_row
from batchscale.records.facts.study import StudyFacts
from batchscale.records.facts.trial import TrialFacts
from batchscale.records.facts.version import OWN_KEY


def upgrade_studies(frame: pl.LazyFrame, where: str) -> pl.LazyFrame:
    """The studies with their facts in a column of their own."""

    def read(own: object) -> dict[str, Any] | None:
        return study_facts_row(StudyFacts.from_json(own, where))

    return _with_facts(frame, read, STUDY_FACTS, where)


def upgrade_trials(frame: pl.LazyFrame, where: str) -> pl.LazyFrame:
    """The trials with their facts in a column of their own; those that a query leaves out are never parsed."""

    def read(own: object) -> dict[str, Any] | None:
        return trial_facts_row(TrialFacts.from_json(own, where))

    return _with_facts(frame, read, TRIAL_FACTS, where)


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
        name for before in frame.collect_schema() for name in ((FACTS, before) if before == "extra" else (before,))
    ]
    return frame.with_columns(
        column.map_batches(facts, return_dtype=kind, is_elementwise=True).alias(FACTS),
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
