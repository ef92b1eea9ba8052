"""What the studies frame holds as JSON text, as values: the spaces that a study searched and what it held fixed."""

import json
from collections.abc import Mapping

import polars as pl

from batchscale.records.facts.columns import FACTS
from batchscale.records.frames import STUDY_COLUMNS, Records
from batchscale.spec.space import SearchSpace

StudyKey = tuple[str, str, str, int]
"""The values of ``STUDY_COLUMNS``."""


def searched_spaces(records: Records) -> dict[StudyKey, tuple[SearchSpace, ...]]:
    """The spaces of each study's searches, oldest first; published records know the last one only.

    Raises:
        SpecError, ValueError: one of them is no search space.
    """
    spaces = pl.col(FACTS).struct.field("spaces")
    rows = records.studies.select(*STUDY_COLUMNS, "parameter_configs", spaces).iter_rows()
    return {
        tuple(key): tuple(SearchSpace.from_json(json.loads(text)) for text in known or [own])
        for *key, own, known in rows
    }


def fixed_values(records: Records) -> dict[StudyKey, Mapping[str, float]]:
    """The metaparameters that each study held fixed, by name; empty where it says nothing."""
    rows = records.studies.select(*STUDY_COLUMNS, pl.col(FACTS).struct.field("fixed")).iter_rows()
    return {tuple(key): dict(sorted(json.loads(text or "{}").items())) for *key, text in rows}
