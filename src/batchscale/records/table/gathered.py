"""What was read of a source and waits to become a part: texts as they came, measurements parsed beside the reading."""

from collections.abc import Iterable, Set
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive.members import RecordFile
from batchscale.records.model import TrialRecord, parse_trial
from batchscale.records.precision import fits_float32
from batchscale.records.rules import Fault
from batchscale.records.tree.blocks import CsvBlock
from batchscale.records.tree.bulk import MeasurementBatch
from batchscale.records.tree.checksum import measurements_checksum, recorded_checksum
from batchscale.records.tree.layout import MEASUREMENTS_FILE
from batchscale.records.tree.measurements import BYTE_ORDER_MARK

MAX_COLUMNS = 2_000  # metrics of a workload, metaparameters of a source: more is an attack on memory
CHUNK_BYTES = 8 * 2**20
"""As much of a workload's measurements is parsed at once, beside the reading of what follows."""


@dataclass(frozen=True)
class MeasuredChunk:
    """Some of the measurements of one workload, parsed; a metric is in float32 if that keeps every digit of it."""

    folder: str
    block: CsvBlock
    facts: dict[tuple[int, int], tuple[str, str | None]]  # header and, if it matters, checksum by size and trial id
    problems: list[str]
    dropped: set[tuple[int, int]]


def parse_chunk(
    folder: str, files: list[tuple[int, int, bytes]], unrecorded: Set[tuple[int, int]] = frozenset()
) -> MeasuredChunk:
    """The measurements of these files: batch size, trial id and bytes of each; trials with a fault are dropped.

    The checksum of an ``unrecorded`` trial is compared with nothing.
    """
    problems: list[str] = []
    dropped: set[tuple[int, int]] = set()

    def on_faults(batch_size: int, trial_id: int, faults: list[Fault]) -> None:
        more = f" There are {len(faults) - 1} more such places." if len(faults) > 1 else ""
        problems.append(f"{folder}/{batch_size}/{trial_id}/{MEASUREMENTS_FILE}: {faults[0]}{more}")
        dropped.add((batch_size, trial_id))

    facts = {
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
    return MeasuredChunk(folder, block, facts, problems, dropped)


@dataclass
class PartContent:
    """What waits in memory to become a part."""

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
        """One file of the source; raises RecordsError if it cannot be a record (measurements are looked at later)."""
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
            if recorded_checksum(trial.metadata) is None:
                self.unrecorded.setdefault(file.folder, set()).add((file.batch_size, trial.trial_id))

    def parse_ahead(self, pool: Executor) -> None:
        """Let the pool parse what waits, once that is a good piece of work."""
        if self.waiting_bytes >= CHUNK_BYTES:
            self.parse_waiting(pool)

    def parse_waiting(self, pool: Executor) -> None:
        """Let the pool parse everything that waits, workload by workload."""
        waiting, self.measurements, self.waiting_bytes = self.measurements, {}, 0
        for folder, files in waiting.items():
            unrecorded = self.unrecorded.get(folder, set()).intersection((size, trial) for size, trial, _ in files)
            self.chunks.append(pool.submit(parse_chunk, folder, files, unrecorded))


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
