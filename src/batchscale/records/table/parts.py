"""Parts of an import: a source is read in pieces that fit into memory, which are built into the table afterwards.

The studies and trials of every part stay in memory. Measurements are parsed beside the reading, and written to a
working folder once there are many. The finished table does not depend on where one part ends and the next begins.
"""

import json
from collections.abc import Iterable, Mapping, Set
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive import RecordFile
from batchscale.records.metadata.columns import METADATA, TRIAL_METADATA, trial_metadata_row
from batchscale.records.model import TrialRecord, parse_trial
from batchscale.records.precision import fits_float32, widen
from batchscale.records.rules import Fault
from batchscale.records.tree.bulk import CsvBlock, MeasurementBatch, join_blocks
from batchscale.records.tree.layout import MEASUREMENTS_FILE
from batchscale.records.tree.measurements import BYTE_ORDER_MARK, measurements_checksum

MAX_COLUMNS = 2_000  # metrics of a workload, metaparameters of a source: more is an attack on memory
CHUNK_BYTES = 8 * 2**20
"""The size of measurements that are parsed at once, beside the reading of the next ones."""

PARAMETER_PREFIX = "parameter:"
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

_sorted_json = json.JSONEncoder(sort_keys=True).encode


@dataclass(frozen=True)
class MeasuredChunk:
    """Some of the measurements of one workload, parsed; a metric is in float32 if that keeps every digit of it."""

    folder: str
    block: CsvBlock
    files: dict[tuple[int, int], tuple[str, str | None]]  # by size and trial: header and, if it is compared, checksum
    problems: list[str]
    dropped: set[tuple[int, int]]


def parse_chunk(
    folder: str, files: list[tuple[int, int, bytes]], unrecorded: Set[tuple[int, int]] = frozenset()
) -> MeasuredChunk:
    """Parse the measurements of files, each given as batch size, trial id and bytes; trials with a fault are dropped.

    ``unrecorded`` trials have no recorded checksum to compare with.
    """
    problems: list[str] = []
    dropped: set[tuple[int, int]] = set()

    def on_faults(batch_size: int, trial_id: int, faults: list[Fault]) -> None:
        more = f" There are {len(faults) - 1} more such places." if len(faults) > 1 else ""
        problems.append(f"{folder}/{batch_size}/{trial_id}/{MEASUREMENTS_FILE}: {faults[0]}{more}")
        dropped.add((batch_size, trial_id))

    described = {
        (size, trial): (_header(data), None if (size, trial) in unrecorded else measurements_checksum(data))
        for size, trial, data in files
    }
    batch = MeasurementBatch(on_faults)
    for file in sorted(files, key=lambda file: file[:2]):
        batch.add(*file)
    files.clear()
    block = batch.take()
    check_width(block.frame.columns, f"metrics of {folder}")
    floats = [name for name, kind in block.frame.schema.items() if kind == pl.Float64]
    narrow = [name for name in floats if fits_float32(block.frame[name])]
    block = CsvBlock(block.frame.with_columns(pl.col(narrow).cast(pl.Float32)), block.runs)
    return MeasuredChunk(folder, block, described, problems, dropped)


@dataclass
class PartContent:
    """The files of a source that were read since the last part."""

    studies: list[tuple[str, int, str]] = field(default_factory=list)
    trials: list[tuple[str, int, TrialRecord, str]] = field(default_factory=list)
    measurements: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)  # not parsed yet
    chunks: list[Future[MeasuredChunk]] = field(default_factory=list)  # being parsed
    unrecorded: dict[str, set[tuple[int, int]]] = field(default_factory=dict)  # trials that have no checksum
    problems: list[str] = field(default_factory=list)
    dropped: list[tuple[str, int, int]] = field(default_factory=list)
    bytes: int = 0
    waiting_bytes: int = 0

    def add(self, file: RecordFile) -> None:
        """Add a file of the source; raises RecordsError if it is no record (measurements are checked later)."""
        self.bytes += len(file.data) + 500
        if file.trial_id is None:
            self.studies.append((file.folder, file.batch_size, _text(file)))
        elif file.name == MEASUREMENTS_FILE:
            self.measurements.setdefault(file.folder, []).append((file.batch_size, file.trial_id, file.data))
            self.waiting_bytes += len(file.data)
        else:
            text = _text(file)
            trial = parse_trial(text, file.path)
            if trial.trial_id != file.trial_id:
                raise RecordsError(f"{file.path}: trial_id agrees with the folder. Found {trial.trial_id}.")
            self.trials.append((file.folder, file.batch_size, trial, text))
            if trial.measurements_sha256 is None:
                self.unrecorded.setdefault(file.folder, set()).add((file.batch_size, trial.trial_id))

    def parse_ahead(self, pool: Executor) -> None:
        """Let the pool parse the waiting measurements once they are `CHUNK_BYTES`."""
        if self.waiting_bytes >= CHUNK_BYTES:
            self.parse_waiting(pool)

    def parse_waiting(self, pool: Executor) -> None:
        """Let the pool parse all waiting measurements, workload by workload."""
        waiting, self.measurements, self.waiting_bytes = self.measurements, {}, 0
        for folder, files in waiting.items():
            unrecorded = self.unrecorded.get(folder, set()).intersection((size, trial) for size, trial, _ in files)
            self.chunks.append(pool.submit(parse_chunk, folder, files, unrecorded))


class Part:
    """The studies, trials and measurements of a part, and its problems.

    ``trials`` and ``files`` are frames with a row for each trial and for each measurement file, those of a workload by
    batch size and trial id. Measurements stay in memory until `store` is called.
    """

    def __init__(self, content: PartContent) -> None:
        self.trials = _trials_frame(content.trials)  # while measurements are still being parsed
        self._chunks = _by_folder(content)
        self.studies, self.problems, self.dropped = content.studies, content.problems, content.dropped
        self._schemas = {folder: _joined_schema(folder, chunks) for folder, chunks in self._chunks.items()}
        self._stored: dict[str, Path] = {}
        rows = []
        for folder, chunks in self._chunks.items():
            described = {key: file for chunk in chunks for key, file in chunk.files.items()}
            runs = sorted(run for chunk in chunks for run in chunk.block.runs)
            rows += [(folder, *run, *described[run[:2]]) for run in runs]
        self.files = pl.DataFrame(rows, schema=FILE_SCHEMA, orient="row")

    def store(self, path: Path) -> None:
        """Move the measurements from memory to a new folder, a file for each workload."""
        path.mkdir()
        for number, folder in enumerate(self._schemas):
            file = path / f"{number}.parquet"
            self.block(folder).frame.write_parquet(file, compression="lz4", statistics=False)
            self._stored[folder] = file
        self._chunks.clear()

    def has(self, folder: str) -> bool:
        """True if there are measurements of this workload."""
        return folder in self._schemas

    def block(self, folder: str) -> CsvBlock:
        """Return the measurements of a workload's trials, by batch size and id."""
        if folder not in self._stored:
            return _join_chunks(self._chunks[folder], self._schemas[folder])
        runs = self.files.filter(pl.col("folder") == folder).select("batch_size", "trial_id", "rows").rows()
        return CsvBlock(pl.read_parquet(self._stored[folder]), runs)

    def schema(self, folder: str) -> Mapping[str, pl.DataType]:
        """Return the columns of a workload's measurements and their types."""
        return self._schemas[folder]


def check_width(names: Iterable[str], what: str) -> None:
    """Refuse a source with absurdly many columns."""
    count = len(list(names))
    if count > MAX_COLUMNS:
        raise RecordsError(f"There are at most {MAX_COLUMNS:,} {one_line(what)}. Found more.")


def _text(file: RecordFile) -> str:
    try:
        return file.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordsError(f"{file.path}: a file is UTF-8 text. Found: {one_line(error)}.") from None


def _header(data: bytes) -> str:
    line = data.removeprefix(BYTE_ORDER_MARK).partition(b"\n")[0].removesuffix(b"\r")
    return line.decode("utf-8", errors="replace")  # a damaged header is a fault that drops the trial


def _trials_frame(trials: Iterable[tuple[str, int, TrialRecord, str]]) -> pl.DataFrame:
    rows: list[tuple[object, ...]] = []
    parameters: dict[str, list[float | None]] = {}
    for folder, size, trial, text in trials:
        extra = _sorted_json(dict(trial.extra))
        metadata = trial_metadata_row(trial.metadata)
        for name, value in trial.parameters.items():
            cells = parameters.get(name)
            if cells is None:
                cells = parameters[name] = []
                check_width(parameters, "metaparameters")
            cells.extend([None] * (len(rows) - len(cells)))
            cells.append(float(value))
        rows.append((folder, size, trial.trial_id, trial.status.value, trial.steps, metadata, extra, text))
    columns = zip(*rows, strict=True) if rows else [()] * len(TRIAL_PART_SCHEMA)
    frame = pl.DataFrame(dict(zip(TRIAL_PART_SCHEMA, columns, strict=True)), schema=TRIAL_PART_SCHEMA)
    return frame.with_columns(
        pl.Series(PARAMETER_PREFIX + name, cells + [None] * (len(rows) - len(cells)), dtype=pl.Float64)
        for name, cells in sorted(parameters.items())
    )


def _by_folder(content: PartContent) -> dict[str, list[MeasuredChunk]]:
    """Return the parsed measurements of every workload; their problems are added to those of the content."""
    chunks = [future.result() for future in content.chunks]
    content.chunks.clear()
    by_folder: dict[str, list[MeasuredChunk]] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.folder):
        by_folder.setdefault(chunk.folder, []).append(chunk)
        content.problems += chunk.problems
        content.dropped += [(chunk.folder, *key) for key in sorted(chunk.dropped)]
    return by_folder


def _joined_schema(folder: str, chunks: list[MeasuredChunk]) -> dict[str, pl.DataType]:
    """Return the columns of all chunks; one is narrow if it is narrow in every chunk."""
    schema: dict[str, pl.DataType] = {}
    for chunk in chunks:
        for name, kind in chunk.block.frame.schema.items():
            schema[name] = pl.Float64() if pl.Float64() in (kind, schema.get(name)) else kind
    check_width(schema, f"metrics of {folder}")
    return schema


def _join_chunks(chunks: list[MeasuredChunk], schema: Mapping[str, pl.DataType]) -> CsvBlock:
    """Return one block, by batch size and trial id."""
    blocks = []
    for chunk in chunks:
        frame = chunk.block.frame
        narrow = [name for name, kind in frame.schema.items() if kind != schema[name]]
        blocks.append(CsvBlock(frame.with_columns(widen(frame[name]) for name in narrow), chunk.block.runs))
    return join_blocks(blocks)
