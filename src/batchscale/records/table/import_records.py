"""Import a tar archive or a records tree into a table: one pass, bounded memory, resumable, atomic at the end.

Everything is made in a hidden folder beside the table (``.TABLE.partial``), which also remembers how far the source was
read; a second import of the same source goes on from there and gives the same bytes.
"""

import hashlib
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
from batchscale.records.archive.stream import ArchiveLimits
from batchscale.records.durable import storing, sync_path, sync_tree
from batchscale.records.filesystem import REAL
from batchscale.records.table.build import (
    TableFrames,
    describe_statuses,
    gather_frames,
    read_measured,
    write_measurements,
    write_small_tables,
)
from batchscale.records.table.files import FORMAT, MANIFEST, TABLE_VERSION, is_table, measurements_path
from batchscale.records.table.parts import writing_frames
from batchscale.records.table.read_parts import ADVICE, SourceReader
from batchscale.records.table.source import open_source
from batchscale.records.tree.texts import json_text

PART_BYTES = 64 * 2**20
SMALL_ROWS = 1_000_000  # measurements of a workload that fit in memory twice


@dataclass(frozen=True)
class Progress:
    """How far an import is: the share of the source that was read, and of the table that was written."""

    read: float
    written: float
    trials: int


@dataclass(frozen=True)
class ImportOptions:
    """How to import."""

    keep_going: bool = False  # leave out what is not sound instead of stopping at it
    verify: str | None = None  # the SHA-256 that the archive must have
    overwrite: bool = False  # put the new table in the place of one that is there
    limits: ArchiveLimits = field(default_factory=ArchiveLimits)
    part_bytes: int = PART_BYTES
    on_progress: Callable[[Progress], None] = field(default=lambda _: None)


@dataclass(frozen=True)
class ImportSummary:
    """What a table holds and what was wrong with its source."""

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
    """The table made from an archive or a tree.

    Raises:
        RecordsError: the source is no archive or tree, is not sound (unless ``keep_going``), or has another checksum;
            or something else stands at ``table``.
        StudyLockedError: another process is importing to the same table.
    """
    options = options or ImportOptions()
    _check_target(table, options)
    opened = open_source(source, options.limits, options.verify)
    staging = table.absolute().parent / f".{table.absolute().name}.partial"
    with storing("the import", table), _locked(staging), writing_frames(staging):
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
        shutil.rmtree(staging)
    return summarize_manifest(manifest, table)


def summarize_manifest(manifest: dict[str, Any], table: Path) -> ImportSummary:
    """The summary that a table's manifest holds."""
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
            f"{table}: there is a table already. Use it, remove it, choose another place, or say --overwrite."
        )


@contextmanager
def _locked(staging: Path) -> Iterator[None]:
    staging.mkdir(exist_ok=True)
    handle = REAL.lock(staging / "lock")
    if handle is None:
        raise StudyLockedError(f"{staging}: one process imports to a table at a time. Another one is at it.")
    try:
        yield
    finally:
        REAL.close(handle)
        if staging.is_dir() and not (staging / "state.json").exists():
            shutil.rmtree(staging)  # nothing to resume from


def _publish(made: Path, table: Path) -> None:
    sync_tree(made)
    if table.exists():
        table.replace(made.with_name("old"))
    made.replace(table)
    sync_path(table.absolute().parent)


def _build(reader: SourceReader, target: Path, options: ImportOptions) -> dict[str, Any]:
    """Make the table's files; those that an interrupted import finished are kept."""

    def on_problem(text: str) -> None:
        if not options.keep_going:
            raise RecordsError(f"{text} {ADVICE}")

    frames = gather_frames(reader.parts, reader.source.has_root, on_problem)
    if not frames.studies.height:
        raise RecordsError("A source of records has at least one sound study. Found none.")
    target.mkdir(exist_ok=True)
    write_small_tables(frames, target)
    kept = set(frames.trials["folder"]) | {row["folder"] for row in _study_folders(frames)}
    folders = sorted(folder for folder in frames.names if folder in kept)
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
    """Every workload's file: small ones two at a time, since one alone keeps no two cores busy; large ones in turn."""
    rows = dict(frames.trials.group_by("folder").agg(pl.col("rows").sum()).rows())
    small = [folder for folder in folders if rows.get(folder, 0) <= SMALL_ROWS]
    with ThreadPoolExecutor(2, "batchscale-build") as pool:
        yield from pool.map(lambda folder: _build_workload(reader, frames, folder, target), small)
    for folder in folders:
        if rows.get(folder, 0) > SMALL_ROWS:
            yield _build_workload(reader, frames, folder, target)


def _study_folders(frames: TableFrames) -> list[dict[str, str]]:
    names = {(name.dataset, name.model, name.optimizer): folder for folder, name in frames.names.items()}
    rows = frames.studies.select("dataset", "model", "optimizer").unique().rows()
    return [{"folder": names[row]} for row in rows]


def _build_workload(reader: SourceReader, frames: TableFrames, folder: str, target: Path) -> dict[str, Any]:
    name = frames.names[folder]
    path = target / measurements_path(name)
    if path.exists():
        found = read_measured(path)
    else:
        found = write_measurements(frames, folder, reader.parts, target)
        sync_path(path)  # here, where other workloads do not wait for the disk
    return {
        "dataset": name.dataset,
        "model": name.model,
        "optimizer": name.optimizer,
        "file": measurements_path(name).as_posix(),
        "rows": found.rows,
        "metrics": {key: str(kind).lower() for key, kind in found.kinds.items()},
    }


def _manifest(
    reader: SourceReader, frames: TableFrames, workloads: list[dict[str, Any]], target: Path
) -> dict[str, Any]:
    damage = [reader.state.damage] if reader.state.damage else []
    problems = sorted({problem for part in reader.parts for problem in part.problems} | set(frames.problems))
    files = sorted(path for path in target.rglob("*.parquet") if path.is_file())
    with ThreadPoolExecutor(2, "batchscale-checksums") as pool:
        checksums = list(pool.map(_checksum, files))
    return {
        "format": FORMAT,
        "format_version": TABLE_VERSION,
        "code_version": __version__,
        "source": reader.source.facts,
        "complete": not damage,
        "counts": {
            "studies": frames.studies.height,
            "trials": describe_statuses(frames.trials),
            "measurements": sum(entry["rows"] for entry in workloads),
        },
        "workloads": workloads,
        "problems": damage + problems,
        "files": {path.relative_to(target).as_posix(): found for path, found in zip(files, checksums, strict=True)},
    }


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
