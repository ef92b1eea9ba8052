"""Parts of an import: what was read from a source between two checkpoints, written to disk as frames.

A part is a folder that appears whole. The finished table does not depend on where one part ends and the next begins.
"""

import errno
import functools
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive.members import RecordFile
from batchscale.records.facts.columns import FACTS, TRIAL_FACTS, trial_facts_row
from batchscale.records.model import TrialRecord, parse_trial
from batchscale.records.precision import fits_float32
from batchscale.records.rules import Fault
from batchscale.records.tree.blocks import CsvBlock
from batchscale.records.tree.bulk import MeasurementBatch
from batchscale.records.tree.checksum import measurements_checksum
from batchscale.records.tree.layout import MEASUREMENTS_FILE, STUDY_FILE
from batchscale.records.tree.measurements import BYTE_ORDER_MARK

PART_VERSION = 2  # an import goes on from parts of its own version only
MAX_PROBLEMS = 10_000
MAX_COLUMNS = 2_000  # metrics of a workload, metaparameters of a source: more is an attack on memory
PARAMETER_PREFIX = "parameter:"
LITTLE_BYTES = 2**20
"""A disk with less room than this is full: no file of a table is written in such small pieces."""

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


@dataclass
class PartContent:
    """What waits in memory to be written as a part."""

    studies: list[tuple[str, int, str]] = field(default_factory=list)
    trials: list[tuple[str, int, TrialRecord, str]] = field(default_factory=list)
    measurements: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    dropped: list[tuple[str, int, int]] = field(default_factory=list)
    bytes: int = 0

    def add(self, file: RecordFile) -> None:
        """One file of the source; raises RecordsError if it cannot be a record (measurements are looked at later)."""
        self.bytes += len(file.data) + 500
        if file.trial_id is None:
            self.studies.append((file.folder, file.batch_size, _text(file)))
        elif file.name == MEASUREMENTS_FILE:
            self.measurements.setdefault(file.folder, []).append((file.batch_size, file.trial_id, file.data))
        else:
            trial = parse_trial(file.data, file.path)
            if trial.trial_id != file.trial_id:
                raise RecordsError(f"{file.path}: trial_id agrees with the folder. Found {trial.trial_id}.")
            self.trials.append((file.folder, file.batch_size, trial, _text(file)))


@dataclass(frozen=True)
class Part:
    """A part on disk."""

    path: Path
    studies: list[tuple[str, int, str]]
    problems: list[str]
    dropped: list[tuple[str, int, int]]
    measurements: dict[str, str]  # file name by folder

    def block(self, folder: str) -> CsvBlock:
        """The measurements of a workload's trials, by batch size and id."""
        runs = self.files.filter(pl.col("folder") == folder).select("batch_size", "trial_id", "rows").rows()
        return CsvBlock(pl.read_parquet(self.path / self.measurements[folder]), runs)

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
    files, rows = {}, []
    for number, (folder, measured) in enumerate(sorted(content.measurements.items())):
        facts_of = {file[:2]: (_header(file[2]), measurements_checksum(file[2])) for file in measured}
        block = _measurements_block(folder, measured, content)
        rows += [(folder, *run, *facts_of[run[:2]]) for run in block.runs]
        files[folder] = f"measurements-{number}.parquet"
        block.frame.write_parquet(new / files[folder], compression="lz4", statistics=False)
    pl.DataFrame(rows, schema=FILE_SCHEMA, orient="row").write_parquet(new / "files.parquet", compression="lz4")
    facts = {
        "studies": content.studies,
        "problems": content.problems,
        "dropped": content.dropped,
        "measurements": files,
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
        facts["measurements"],
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


def _measurements_block(folder: str, files: list[tuple[int, int, bytes]], content: PartContent) -> CsvBlock:
    def on_faults(batch_size: int, trial_id: int, faults: list[Fault]) -> None:
        more = f" There are {len(faults) - 1} more such places." if len(faults) > 1 else ""
        content.problems.append(f"{folder}/{batch_size}/{trial_id}/{MEASUREMENTS_FILE}: {faults[0]}{more}")
        content.dropped.append((folder, batch_size, trial_id))

    batch = MeasurementBatch(on_faults)
    for file in sorted(files, key=lambda file: file[:2]):
        batch.add(*file)
    files.clear()
    block = batch.take()
    frame = block.frame
    check_width(frame.columns, f"metrics of {folder}")
    narrow = [name for name, kind in frame.schema.items() if kind == pl.Float64 and fits_float32(frame[name])]
    return CsvBlock(frame.with_columns(pl.col(narrow).cast(pl.Float32)), block.runs)


def check_width(names: Iterable[str], what: str) -> None:
    """Refuse a source with absurdly many columns."""
    count = len(list(names))
    if count > MAX_COLUMNS:
        raise RecordsError(f"There are at most {MAX_COLUMNS:,} {one_line(what)}. Found more.")


def study_path(folder: str, batch_size: int) -> str:
    """The path of a study's file in its source."""
    return f"{folder}/{batch_size}/{STUDY_FILE}"
