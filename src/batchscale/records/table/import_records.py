"""Import a tar archive or a records tree into a table: one pass, bounded memory, atomic at the end.

Everything is made in a hidden folder beside the table (``.TABLE.partial``), which is removed when the import ends or
fails. One that a killed process left is removed by the next import to the same table.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from batchscale import __version__
from batchscale.errors import RecordsError, StudyLockedError
from batchscale.records.archive import ArchiveLimits
from batchscale.records.durable import REAL, storing, sync_path, sync_tree
from batchscale.records.model import json_text
from batchscale.records.table.build import (
    TableFrames,
    describe_statuses,
    gather_frames,
    write_measurements,
    write_small_tables,
)
from batchscale.records.table.files import FORMAT, MANIFEST, TABLE_VERSION, is_table, measurements_path
from batchscale.records.table.read_source import ADVICE, SourceReader
from batchscale.records.table.source import open_source

PART_BYTES = 64 * 2**20
SMALL_ROWS = 1_000_000  # measurements of a workload that fit in memory twice
_OLD = "old"  # a table that is being replaced, where names cannot be exchanged
LITTLE_BYTES = 2**20
"""A disk with less free space than this is full: no file of a table is written in such small pieces."""


@dataclass(frozen=True)
class Progress:
    """The progress of an import: the share of the source that was read, and of the table that was written."""

    read: float
    written: float
    trials: int


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import."""

    keep_going: bool = False  # leave out what is not sound instead of stopping at it
    verify: str | None = None  # the SHA-256 that the archive must have
    overwrite: bool = False  # put the new table in the place of one that is there
    limits: ArchiveLimits = field(default_factory=ArchiveLimits)
    part_bytes: int = PART_BYTES
    on_progress: Callable[[Progress], None] = field(default=lambda _: None)


@dataclass(frozen=True)
class ImportSummary:
    """The content of a table and the problems of its source."""

    table: Path
    workloads: int
    studies: int
    trials: dict[str, int]  # by status
    measurements: int
    metrics: tuple[str, ...]
    problems: tuple[str, ...]
    complete: bool  # False: the source is damaged, and only what stands before the damage was imported
    source: dict[str, Any]


def import_records(source: Path, table: Path, options: ImportOptions | None = None) -> ImportSummary:
    """Make a table from an archive or a tree.

    Raises:
        RecordsError: the source is no archive or tree, is not sound (unless ``keep_going``), or has another checksum;
            or something else stands at ``table``.
        StudyLockedError: another process is importing to the same table.
    """
    options = options or ImportOptions()
    given, table = table, table.resolve() if table.is_symlink() else table  # a link stays; its folder is replaced
    _check_target(table, options)
    opened = open_source(source, options.limits, options.verify)
    staging = table.absolute().parent / f".{table.absolute().name}.partial"
    with storing("the import", table), _working_folder(staging, table), _full_disk_errors(staging):
        reader = SourceReader(
            opened,
            staging,
            options.keep_going,
            options.part_bytes,
            lambda share, trials: options.on_progress(Progress(share, 0.0, trials)),
        )
        reader.read()
        manifest = _build(reader, staging / "table", options)
        _publish(staging / "table", table)
    return summarize_manifest(manifest, given)


def summarize_manifest(manifest: dict[str, Any], table: Path) -> ImportSummary:
    """Return the summary in a table's manifest."""
    counts = manifest["counts"]
    return ImportSummary(
        table=table,
        workloads=len(manifest["workloads"]),
        studies=counts["studies"],
        trials=counts["trials"],
        measurements=counts["measurements"],
        metrics=tuple(sorted({name for entry in manifest["workloads"] for name in entry["metrics"]})),
        problems=tuple(manifest["problems"]),
        complete=manifest["complete"],
        source=manifest["source"],
    )


def _check_target(table: Path, options: ImportOptions) -> None:
    if not table.exists() and not table.is_symlink():
        if not table.absolute().parent.is_dir():
            raise RecordsError(f"{table}: a table is made in a folder that exists. Make {table.parent} first.")
        return
    if not is_table(table):
        raise RecordsError(
            f"{table}: a table is made where nothing is yet. Found something else. Choose another place."
        )
    if not options.overwrite:
        raise RecordsError(
            f"{table}: there is a table already. Use it, remove it, choose another place, or pass --overwrite."
        )


@contextmanager
def _working_folder(staging: Path, table: Path) -> Iterator[None]:
    """Make and lock the working folder of an import, empty at first and removed at the end."""
    staging.mkdir(exist_ok=True)
    handle = REAL.lock(staging / "lock")
    if handle is None:
        raise StudyLockedError(f"{staging}: one process imports to a table at a time. Another one is importing.")
    try:
        if (staging / _OLD).is_dir() and not table.exists():  # an import was killed while it replaced the table
            (staging / _OLD).replace(table)
        for path in staging.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()
        yield
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        REAL.close(handle)


@contextmanager
def _full_disk_errors(folder: Path) -> Iterator[None]:
    """Raise OSError for a full disk, which Polars reports in many ways or not at all."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        text = str(error)
        full = "os error 28" in text or "No space left" in text or shutil.disk_usage(folder).free < LITTLE_BYTES
        if not full:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def _publish(made: Path, table: Path) -> None:
    """Put the new table in its place; a table that is there is replaced, and stays if that fails."""
    sync_tree(made)
    if not table.exists():
        made.replace(table)
    elif not REAL.exchange(made, table):
        old = made.with_name(_OLD)
        table.replace(old)
        try:
            made.replace(table)
        except OSError:
            old.replace(table)
            raise
    sync_path(table.absolute().parent)


def _build(reader: SourceReader, target: Path, options: ImportOptions) -> dict[str, Any]:
    """Make the table's files and return its manifest."""

    def on_problem(text: str) -> None:
        if not options.keep_going:
            raise RecordsError(f"{text} {ADVICE}")

    frames = gather_frames(reader.parts, reader.source.has_root, on_problem)
    if not frames.studies.height:
        raise RecordsError("A source of records has at least one sound study. Found none.")
    target.mkdir()
    write_small_tables(frames, target)
    used = set(frames.trials["folder"]) | _study_folders(frames)
    folders = sorted(folder for folder in frames.names if folder in used)
    workloads = []
    for entry in _build_workloads(reader, frames, folders, target):
        workloads.append(entry)
        options.on_progress(Progress(1.0, len(workloads) / len(folders), frames.trials.height))
    manifest = _manifest(reader, frames, sorted(workloads, key=lambda entry: str(entry["file"])), target)
    (target / MANIFEST).write_bytes(json_text(manifest, MANIFEST))
    return manifest


def _build_workloads(
    reader: SourceReader, frames: TableFrames, folders: list[str], target: Path
) -> Iterator[dict[str, Any]]:
    """Write every workload's file: small ones two at a time, to keep two cores busy; large ones in turn."""
    rows = dict(frames.trials.group_by("folder").agg(pl.col("rows").sum()).rows())
    small = [folder for folder in folders if rows.get(folder, 0) <= SMALL_ROWS]
    with ThreadPoolExecutor(2, "batchscale-build") as pool:
        yield from pool.map(lambda folder: _build_workload(reader, frames, folder, target), small)
    for folder in folders:
        if rows.get(folder, 0) > SMALL_ROWS:
            yield _build_workload(reader, frames, folder, target)


def _study_folders(frames: TableFrames) -> set[str]:
    names = {(name.dataset, name.model, name.optimizer): folder for folder, name in frames.names.items()}
    rows = frames.studies.select("dataset", "model", "optimizer").unique().rows()
    return {names[row] for row in rows}


def _build_workload(reader: SourceReader, frames: TableFrames, folder: str, target: Path) -> dict[str, Any]:
    name = frames.names[folder]
    written = write_measurements(frames, folder, reader.parts, target)
    sync_path(target / measurements_path(name))  # here, where other workloads do not wait for the disk
    return {
        "dataset": name.dataset,
        "model": name.model,
        "optimizer": name.optimizer,
        "file": measurements_path(name).as_posix(),
        "rows": written.rows,
        "metrics": {key: str(kind).lower() for key, kind in written.kinds.items()},
    }


def _manifest(
    reader: SourceReader, frames: TableFrames, workloads: list[dict[str, Any]], target: Path
) -> dict[str, Any]:
    damage = [reader.damage] if reader.damage else []
    problems = sorted({problem for part in reader.parts for problem in part.problems} | set(frames.problems))
    files = sorted(path for path in target.rglob("*.parquet") if path.is_file())
    with ThreadPoolExecutor(2, "batchscale-checksums") as pool:
        checksums = list(pool.map(_checksum, files))
    return {
        "format": FORMAT,
        "format_version": TABLE_VERSION,
        "code_version": __version__,
        "source": reader.source.description,
        "complete": not damage,
        "counts": {
            "studies": frames.studies.height,
            "trials": describe_statuses(frames.trials),
            "measurements": sum(entry["rows"] for entry in workloads),
        },
        "workloads": workloads,
        "problems": damage + problems,
        "files": {path.relative_to(target).as_posix(): entry for path, entry in zip(files, checksums, strict=True)},
    }


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
