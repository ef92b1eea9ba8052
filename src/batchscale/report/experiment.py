"""The experiment files that a workload's studies were run with, so that the page is enough to run them again."""

import polars as pl

from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA

MOST_CHARACTERS = 50_000  # of one file; a longer one would make the page unreadable


def experiment_files(records: Records) -> tuple[str, ...]:
    """The text of every experiment file that the studies name, each once; none for published records."""
    texts = records.studies.sort("batch_size").select(pl.col(METADATA).struct.field("experiment")).to_series()
    return tuple(_shortened(text.strip()) for text in texts.drop_nulls().unique(maintain_order=True) if text.strip())


def _shortened(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n# … cut here, after {MOST_CHARACTERS:,} characters; study.json has all of it"
