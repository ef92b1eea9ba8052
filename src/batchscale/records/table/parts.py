"""Parts of an import: what was read from a source between two checkpoints, written to disk as frames.

A part is a folder that appears whole. The finished table does not depend on where one part ends and the next begins.
"""

import errno
import functools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive.members import RecordFile
from batchscale.records.facts.columns import FACTS, TRIAL_FACTS, trial_facts_row
from batchscale.records.model import TrialRecord, parse_trial
from batchscale.records.precision import fits_float32
from batchscale.records.rules import Fault
from batchscale.records.tree.blocks import CsvBlock, join_blocks
from batchscale.records.tree.bulk import MeasurementBatch
from batchscale.records.tree.checksum import measurements_checksum
from batchscale.records.tree.layout import MEASUREMENTS_FILE, STUDY_FILE
from batchscale.records.tree.measurements import BYTE_ORDER_MARK

PART_VERSION = 3  # an import goes on from parts of its own version only
MAX_PROBLEMS = 10_000
MAX_COLUMNS = 2_000  # metrics of a workload, metaparameters of a source: more is an attack on memory
PARAMETER_PREFIX = "parameter:"
LITTLE_BYTES = 2**20
"""A disk with less room than this is full: no file of a table is written in such small pieces."""
CHUNK_BYTES = 8 * 2**20
"""As much of a workload's measurements is parsed at once, beside the reading of what follows."""
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


@dataclass(frozen=True)
class MeasuredChunk:
    """Some of the measurements of one workload, parsed."""

    folder: str
    block: CsvBlock
    narrow: frozenset[str]  # columns of which float32 keeps every digit
    facts: dict[tuple[int, int], tuple[str, str]]  # header and checksum by batch size and trial id
    problems: list[str]
    dropped: set[tuple[int, int]]


def parse_chunk(folder: str, files: list[tuple[int, int, bytes]]) -> MeasuredChunk:
    """The measurements of these files: batch size, trial id and bytes of each; trials with a fault are dropped."""
    problems: list[str] = []
    dropped: set[tuple[int, int]] = set()

    def on_faults(batch_size: int, trial_id: int, faults: list[Fault]) -> None:
        more = f" There are {len(faults) - 1} more such places." if len(faults) > 1 else ""
        problems.append(f"{folder}/{batch_size}/{trial_id}/{MEASUREMENTS_FILE}: {faults[0]}{more}")
        dropped.add((batch_size, trial_id))

    facts = {(size, trial): (_header(data), measurements_checksum(data)) for size, trial, data in files}
    batch = MeasurementBatch(on_faults)
    for file in sorted(files, key=lambda file: file[:2]):
        batch.add(*file)
    files.clear()
    block = batch.take()
    check_width(block.frame.columns, f"metrics of {folder}")
    floats = [name for name, kind in block.frame.schema.items() if kind == pl.Float64]
    narrow = frozenset(name for name in floats if fits_float32(block.frame[name]))
    return MeasuredChunk(folder, block, narrow, facts, problems, dropped)


@dataclass
class PartContent:
    """What waits in memory to be written as a part."""

    studies: list[tuple[str, int, str]] = field(default_factory=list)
    trials: list[tuple[str, int, TrialRecord, str]] = field(default_factory=list)
    measurements: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)  # not parsed yet
    chunks: list[Future[MeasuredChunk]] = field(default_factory=list)  # being parsed
    problems: list[str] = field(default_factory=list)
    dropped: list[tuple[str, int, int]] = field(default_factory=list)
    bytes: int = 0
    waiting_bytes: int = 0

    def add(self, file: RecordFile) -> None:
        """One file of the source; raises RecordsError if it cannot be a record (measurements are looked at later)."""
        self.bytes += len(file.data) + 500
        if file.trial_id is None:
            self.studies.append((file.folder, file.batch_size, _text(file)))
        elif file.name == MEASUREMENTS_FILE:
            self.measurements.setdefault(file.folder, []).append((file.batch_size, file.trial_id, file.data))
            self.waiting_bytes += len(file.data)
        else:
            trial = parse_trial(file.data, file.path)
            if trial.trial_id != file.trial_id:
                raise RecordsError(f"{file.path}: trial_id agrees with the folder. Found {trial.trial_id}.")
            self.trials.append((file.folder, file.batch_size, trial, _text(file)))

    def parse_ahead(self, pool: Executor) -> None:
        """Let the pool parse what waits, once that is a good piece of work."""
        if self.waiting_bytes >= CHUNK_BYTES:
            self.parse_waiting(pool)

    def parse_waiting(self, pool: Executor) -> None:
        """Let the pool parse everything that waits, workload by workload."""
        waiting, self.measurements, self.waiting_bytes = self.measurements, {}, 0
        self.chunks += [pool.submit(parse_chunk, folder, files) for folder, files in waiting.items()]


@dataclass(frozen=True)
class Part:
    """A part on disk."""

    path: Path
    studies: list[tuple[str, int, str]]
    problems: list[str]
    dropped: list[tuple[str, int, int]]
    measurements: dict[str, tuple[int, int]]  # by folder: where they begin in the file of measurements, and their bytes

    def block(self, folder: str) -> CsvBlock:
        """The measurements of a workload's trials, by batch size and id."""
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

    @property
    def trials(self) -> pl.DataFrame:
        """The trials, a row each."""
        return pl.read_parquet(self.path / "trials.parquet")

    @functools.cached_property
    def files(self) -> pl.DataFrame:
        """The measurement files, a row each, those of a workload by batch size and trial id."""
        return pl.read_parquet(self.path / "files.parquet")


def _text(file: RecordFile) -> str:
    try:
        return file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordsError(f"{file.path}: a file is UTF-8 text. Found: {one_line(error)}.") from None


def write_part(content: PartContent, path: Path) -> Part:
    """The content on disk, durable, and gone from memory when the caller lets go of it."""
    new = path.with_name(path.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    trials = _trials_frame(content.trials)
    trials.write_parquet(new / "trials.parquet", compression="lz4")
    places, rows = {}, []
    with (new / _MEASUREMENTS).open("wb") as file:
        for folder, chunks in _by_folder(content).items():
            block = _join_chunks(folder, chunks)
            facts_of = {key: facts for chunk in chunks for key, facts in chunk.facts.items()}
            rows += [(folder, *run, *facts_of[run[:2]]) for run in block.runs]
            start = file.tell()
            buffer = BytesIO()
            block.frame.write_parquet(buffer, compression="lz4", statistics=False)
            file.write(buffer.getbuffer())
            places[folder] = (start, file.tell() - start)
    pl.DataFrame(rows, schema=FILE_SCHEMA, orient="row").write_parquet(new / "files.parquet", compression="lz4")
    facts = {
        "studies": content.studies,
        "problems": content.problems,
        "dropped": content.dropped,
        "measurements": places,
    }
    (new / "part.json").write_text(json.dumps(facts))
    sync_tree(new)
    shutil.rmtree(path, ignore_errors=True)  # left by a process that died before its checkpoint
    new.replace(path)
    sync_folder(path.parent)
    return read_part(path)


def read_part(path: Path) -> Part:
    """A part that an earlier process wrote."""
    facts: dict[str, Any] = json.loads((path / "part.json").read_text())
    return Part(
        path,
        [(folder, size, text) for folder, size, text in facts["studies"]],
        facts["problems"],
        [(folder, size, trial) for folder, size, trial in facts["dropped"]],
        {folder: (start, size) for folder, (start, size) in facts["measurements"].items()},
    )


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


def sync_tree(folder: Path) -> None:
    """Every file and folder below, durable."""
    for below, _, names in os.walk(folder):
        for name in names:
            with (Path(below) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(below))


def sync_folder(folder: Path) -> None:
    """The names in a folder, durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def _header(data: bytes) -> str:
    line = data.removeprefix(BYTE_ORDER_MARK).partition(b"\n")[0].removesuffix(b"\r")
    return line.decode("utf-8", errors="replace")  # a damaged header is a fault that drops the trial


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


def check_width(names: Iterable[str], what: str) -> None:
    """Refuse a source with absurdly many columns."""
    count = len(list(names))
    if count > MAX_COLUMNS:
        raise RecordsError(f"There are at most {MAX_COLUMNS:,} {one_line(what)}. Found more.")


def study_path(folder: str, batch_size: int) -> str:
    """The path of a study's file in its source."""
    return f"{folder}/{batch_size}/{STUDY_FILE}"
