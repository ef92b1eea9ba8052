"""Parts of an import: what was read from a source between two checkpoints, as frames.

A part is stored as a folder that appears whole; the last one of a source is built into the table from memory. The
finished table does not depend on where one part ends and the next begins.
"""

import errno
import functools
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, final

import polars as pl

from batchscale.records.durable import sync_path, sync_tree
from batchscale.records.facts.columns import FACTS, TRIAL_FACTS, trial_facts_row
from batchscale.records.model import TrialRecord
from batchscale.records.table.gathered import MeasuredChunk, PartContent, check_width
from batchscale.records.tree.blocks import CsvBlock, join_blocks

PART_VERSION = 4  # an import goes on from parts of its own version only
PARAMETER_PREFIX = "parameter:"
LITTLE_BYTES = 2**20
"""A disk with less room than this is full: no file of a table is written in such small pieces."""
_MEASUREMENTS = "measurements"  # one behind the other in one file, which is made durable at once

KEY_SCHEMA = {"folder": pl.String, "batch_size": pl.Int64, "trial_id": pl.Int64}
FILE_SCHEMA = {**KEY_SCHEMA, "rows": pl.Int64, "header": pl.String, "sha256": pl.String}
TRIAL_PART_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **KEY_SCHEMA,
    "status": pl.String,
    "steps": pl.Int64,
    FACTS: pl.Struct(TRIAL_FACTS),
    "extra": pl.String,
    "text": pl.String,
}


class Part(ABC):
    """The studies, trials and measurements of a part, and what was wrong with it."""

    studies: list[tuple[str, int, str]]
    problems: list[str]
    dropped: list[tuple[str, int, int]]

    @property
    @abstractmethod
    def trials(self) -> pl.DataFrame:
        """The trials, a row each."""

    @property
    @abstractmethod
    def files(self) -> pl.DataFrame:
        """The measurement files, a row each, those of a workload by batch size and trial id."""

    @abstractmethod
    def has(self, folder: str) -> bool:
        """Whether there are measurements of this workload."""

    @abstractmethod
    def block(self, folder: str) -> CsvBlock:
        """The measurements of a workload's trials, by batch size and id."""

    @abstractmethod
    def schema(self, folder: str) -> Mapping[str, pl.DataType]:
        """The columns of a workload's measurements and their types."""


@final
class HeldPart(Part):
    """A part in memory; ``blocks`` has the measurements by folder."""

    def __init__(self, content: PartContent) -> None:
        chunks_of = _by_folder(content)
        self.studies, self.problems, self.dropped = content.studies, content.problems, content.dropped
        self._trials = _trials_frame(content.trials)
        self.blocks = {folder: _join_chunks(folder, chunks) for folder, chunks in chunks_of.items()}
        rows = []
        for folder, chunks in chunks_of.items():
            facts_of = {key: facts for chunk in chunks for key, facts in chunk.facts.items()}
            rows += [(folder, *run, *facts_of[run[:2]]) for run in self.blocks[folder].runs]
        self._files = pl.DataFrame(rows, schema=FILE_SCHEMA, orient="row")

    @property
    def trials(self) -> pl.DataFrame:
        """The trials, a row each."""
        return self._trials

    @property
    def files(self) -> pl.DataFrame:
        """The measurement files, a row each."""
        return self._files

    def has(self, folder: str) -> bool:
        """Whether there are measurements of this workload."""
        return folder in self.blocks

    def block(self, folder: str) -> CsvBlock:
        """The measurements of a workload's trials."""
        return self.blocks[folder]

    def schema(self, folder: str) -> Mapping[str, pl.DataType]:
        """The columns of a workload's measurements and their types."""
        return self.blocks[folder].frame.schema


@final
class StoredPart(Part):
    """A part on disk, of which only the asked for is read; ``measurements`` has place and bytes by folder."""

    def __init__(self, path: Path) -> None:
        facts: dict[str, Any] = json.loads((path / "part.json").read_text())
        self.path = path
        self.studies = [(folder, size, text) for folder, size, text in facts["studies"]]
        self.problems = facts["problems"]
        self.dropped = [(folder, size, trial) for folder, size, trial in facts["dropped"]]
        self.measurements = {folder: (start, size) for folder, (start, size) in facts["measurements"].items()}

    @property
    def trials(self) -> pl.DataFrame:
        """The trials, a row each."""
        return pl.read_parquet(self.path / "trials.parquet")

    @functools.cached_property
    def files(self) -> pl.DataFrame:
        """The measurement files, a row each."""
        return pl.read_parquet(self.path / "files.parquet")

    def has(self, folder: str) -> bool:
        """Whether there are measurements of this workload."""
        return folder in self.measurements

    def block(self, folder: str) -> CsvBlock:
        """The measurements of a workload's trials."""
        runs = self.files.filter(pl.col("folder") == folder).select("batch_size", "trial_id", "rows").rows()
        return CsvBlock(pl.read_parquet(self._bytes(folder)), runs)

    def schema(self, folder: str) -> Mapping[str, pl.DataType]:
        """The columns of a workload's measurements and their types."""
        return pl.read_parquet_schema(BytesIO(self._bytes(folder)))

    def _bytes(self, folder: str) -> bytes:
        start, size = self.measurements[folder]
        with (self.path / _MEASUREMENTS).open("rb") as file:
            file.seek(start)
            return file.read(size)


def store_part(part: HeldPart, path: Path) -> StoredPart:
    """The part on disk, durable, and gone from memory when the caller lets go of it."""
    new = path.with_name(path.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    part.trials.write_parquet(new / "trials.parquet", compression="lz4")
    part.files.write_parquet(new / "files.parquet", compression="lz4")
    places = {}
    with (new / _MEASUREMENTS).open("wb") as file:
        for folder, block in part.blocks.items():
            start = file.tell()
            buffer = BytesIO()
            block.frame.write_parquet(buffer, compression="lz4", statistics=False)
            file.write(buffer.getbuffer())
            places[folder] = (start, file.tell() - start)
    facts = {
        "studies": part.studies,
        "problems": part.problems,
        "dropped": part.dropped,
        "measurements": places,
    }
    (new / "part.json").write_text(json.dumps(facts))
    sync_tree(new)
    shutil.rmtree(path, ignore_errors=True)  # left by a process that died before its checkpoint
    new.replace(path)
    sync_path(path.parent)
    return StoredPart(path)


@contextmanager
def writing_frames(folder: Path) -> Iterator[None]:
    """Tells a full disk from other troubles of Polars, whose errors on writing say it in many ways or not at all."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        text = str(error)
        full = "os error 28" in text or "No space left" in text or shutil.disk_usage(folder).free < LITTLE_BYTES
        if not full:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def _trials_frame(trials: Iterable[tuple[str, int, TrialRecord, str]]) -> pl.DataFrame:
    rows: list[dict[str, object]] = []
    names: set[str] = set()
    for folder, batch_size, trial, text in trials:
        row = {
            "folder": folder,
            "batch_size": batch_size,
            "trial_id": trial.trial_id,
            "status": trial.status.value,
            "steps": trial.steps,
            FACTS: trial_facts_row(trial.facts),
            "extra": json.dumps(dict(trial.extra), sort_keys=True),
            "text": text,
        }
        rows.append(row | {PARAMETER_PREFIX + name: float(value) for name, value in trial.parameters.items()})
        names.update(trial.parameters)
        check_width(names, "metaparameters")
    schema = TRIAL_PART_SCHEMA | {PARAMETER_PREFIX + name: pl.Float64 for name in sorted(names)}
    return pl.DataFrame(rows, schema=schema)


def _by_folder(content: PartContent) -> dict[str, list[MeasuredChunk]]:
    """The parsed measurements of every workload; what was wrong with them goes to the content's own problems."""
    chunks = [future.result() for future in content.chunks]
    content.chunks.clear()
    found: dict[str, list[MeasuredChunk]] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.folder):
        found.setdefault(chunk.folder, []).append(chunk)
        content.problems += chunk.problems
        content.dropped += [(chunk.folder, *key) for key in sorted(chunk.dropped)]
    return found


def _join_chunks(folder: str, chunks: list[MeasuredChunk]) -> CsvBlock:
    """One block, by batch size and trial id; a column is narrow if it is so in every chunk."""
    block = join_blocks([chunk.block for chunk in chunks])
    check_width(block.frame.columns, f"metrics of {folder}")
    wide = {name for chunk in chunks for name in chunk.block.frame.columns if name not in chunk.narrow}
    narrow = [name for name in block.frame.columns if name not in wide]
    return CsvBlock(block.frame.with_columns(pl.col(narrow).cast(pl.Float32)), block.runs)
