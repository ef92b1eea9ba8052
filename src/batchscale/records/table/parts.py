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
from batchscale.records.metadata.columns import METADATA, TRIAL_METADATA, trial_metadata_row
from batchscale.records.model import TrialRecord
from batchscale.records.precision import widen
from batchscale.records.table.gathered import MeasuredChunk, PartContent, check_width
from batchscale.records.tree.blocks import CsvBlock, join_blocks

PART_VERSION = 5  # an import goes on from parts of its own version only
PARAMETER_PREFIX = "parameter:"
LITTLE_BYTES = 2**20
"""A disk with less room than this is full: no file of a table is written in such small pieces."""
_MEASUREMENTS = "measurements"  # one behind the other in one file, which is made durable at once

_sorted_json = json.JSONEncoder(sort_keys=True).encode

KEY_SCHEMA = {"folder": pl.String, "batch_size": pl.Int64, "trial_id": pl.Int64}
FILE_SCHEMA = {**KEY_SCHEMA, "rows": pl.Int64, "header": pl.String, "sha256": pl.String}
TRIAL_PART_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    **KEY_SCHEMA,
    "status": pl.String,
    "steps": pl.Int64,
    METADATA: pl.Struct(TRIAL_METADATA),
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
    """A part in memory; the pieces of a workload are joined when it is asked for."""

    def __init__(self, content: PartContent) -> None:
        self._trials = _trials_frame(content.trials)  # while measurements are still being parsed
        self._chunks = _by_folder(content)
        self.studies, self.problems, self.dropped = content.studies, content.problems, content.dropped
        self._schemas = {folder: _joined_schema(folder, chunks) for folder, chunks in self._chunks.items()}
        rows = []
        for folder, chunks in self._chunks.items():
            facts_of = {key: facts for chunk in chunks for key, facts in chunk.facts.items()}
            runs = sorted(run for chunk in chunks for run in chunk.block.runs)
            rows += [(folder, *run, *facts_of[run[:2]]) for run in runs]
        self._files = pl.DataFrame(rows, schema=FILE_SCHEMA, orient="row")

    @property
    def folders(self) -> list[str]:
        """The workloads that have measurements here."""
        return list(self._chunks)

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
        return folder in self._chunks

    def block(self, folder: str) -> CsvBlock:
        """The measurements of a workload's trials."""
        return _join_chunks(self._chunks[folder], self._schemas[folder])

    def schema(self, folder: str) -> Mapping[str, pl.DataType]:
        """The columns of a workload's measurements and their types."""
        return self._schemas[folder]


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
        for folder in part.folders:
            start = file.tell()
            buffer = BytesIO()
            part.block(folder).frame.write_parquet(buffer, compression="lz4", statistics=False)
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
    rows: list[tuple[object, ...]] = []
    parameters: dict[str, list[float | None]] = {}
    for folder, size, trial, text in trials:
        extra = _sorted_json(dict(trial.extra))
        facts = trial_metadata_row(trial.metadata)
        for name, value in trial.parameters.items():
            cells = parameters.get(name)
            if cells is None:
                cells = parameters[name] = []
                check_width(parameters, "metaparameters")
            cells.extend([None] * (len(rows) - len(cells)))
            cells.append(float(value))
        rows.append((folder, size, trial.trial_id, trial.status.value, trial.steps, facts, extra, text))
    columns = zip(*rows, strict=True) if rows else [()] * len(TRIAL_PART_SCHEMA)
    frame = pl.DataFrame(dict(zip(TRIAL_PART_SCHEMA, columns, strict=True)), schema=TRIAL_PART_SCHEMA)
    return frame.with_columns(
        pl.Series(PARAMETER_PREFIX + name, cells + [None] * (len(rows) - len(cells)), dtype=pl.Float64)
        for name, cells in sorted(parameters.items())
    )


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


def _joined_schema(folder: str, chunks: list[MeasuredChunk]) -> dict[str, pl.DataType]:
    """The columns of all chunks; one is narrow if it is so in every chunk."""
    found: dict[str, pl.DataType] = {}
    for chunk in chunks:
        for name, kind in chunk.block.frame.schema.items():
            found[name] = pl.Float64() if pl.Float64() in (kind, found.get(name)) else kind
    check_width(found, f"metrics of {folder}")
    return found


def _join_chunks(chunks: list[MeasuredChunk], schema: Mapping[str, pl.DataType]) -> CsvBlock:
    """One block, by batch size and trial id."""
    blocks = []
    for chunk in chunks:
        frame = chunk.block.frame
        narrow = [name for name, kind in frame.schema.items() if kind != schema[name]]
        blocks.append(CsvBlock(frame.with_columns(widen(frame[name]) for name in narrow), chunk.block.runs))
    return join_blocks(blocks)
