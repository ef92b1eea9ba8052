"""Check a table or an archive by the rules of the format, as ``check`` does a tree."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive import (
    ArchiveLimits,
    ArchiveStream,
    DamagedArchiveError,
    RecordFile,
    Skipped,
    iter_archive,
)
from batchscale.records.check.texts import CheckedTrial, check_study_text, check_trial_text
from batchscale.records.check.tree import OnUncovered, Violation, check_tree, header_faults, ignore_uncovered
from batchscale.records.frames import WORKLOAD_COLUMNS
from batchscale.records.model import Status
from batchscale.records.rules import Fault
from batchscale.records.table.build import name_workloads
from batchscale.records.table.files import (
    ORIGINAL_SCHEMA,
    ORIGINALS,
    is_table,
    open_table_file,
    read_manifest,
    read_table,
)
from batchscale.records.tree.bulk import read_measurement_files
from batchscale.records.tree.layout import MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE
from batchscale.records.tree.measurements import BYTE_ORDER_MARK, checksum_fault, measurements_checksum
from batchscale.spec.workload_name import WorkloadName

_READ_BYTES = 32 * 2**20


@dataclass
class _Study:
    """The files of one study."""

    text: bytes | None = None
    trials: dict[int, bytes] = field(default_factory=dict)
    headers: dict[int, bytes] = field(default_factory=dict)
    checksums: dict[int, str] = field(default_factory=dict)
    measured: set[int] = field(default_factory=set)
    faulty: set[int] = field(default_factory=set)


def check_records(path: Path, on_uncovered: OnUncovered = ignore_uncovered) -> list[Violation]:
    """Return every violation in a tree, a table or an archive, in order of paths and lines.

    ``on_uncovered`` receives each ``study.json`` and ``metadata.json`` that has no checksum to compare with.

    Raises:
        RecordsError: there are no records at the path, or an archive passes a limit.
    """
    if is_table(path):
        return _sorted(check_table(path, on_uncovered))
    if path.is_file():
        return _sorted(check_archive(path, on_uncovered=on_uncovered))
    return check_tree(path, on_uncovered=on_uncovered)


def check_archive(
    path: Path, limits: ArchiveLimits | None = None, on_uncovered: OnUncovered = ignore_uncovered
) -> Iterator[Violation]:
    """Yield the violations of an archive; it is read once, and nothing is written."""
    studies: dict[tuple[str, int], _Study] = {}
    waiting: list[RecordFile] = []
    size = 0
    with ArchiveStream(path, limits or ArchiveLimits()) as stream:
        try:
            for entry in iter_archive(stream):
                if isinstance(entry, Skipped):
                    if entry.problem is not None:
                        yield Violation(path, None, "archive-member", entry.problem)
                    continue
                if not _add(studies, entry):
                    yield Violation(path / entry.path, None, "archive-member", "the same name again")
                elif entry.name == MEASUREMENTS_FILE:
                    waiting.append(entry)
                    size += len(entry.data)
                if size > _READ_BYTES:
                    yield from _read_measurements(path, waiting, studies)
                    size = 0
        except DamagedArchiveError as error:
            yield Violation(path, None, "archive-damage", one_line(error, 500))
    yield from _read_measurements(path, waiting, studies)
    if not studies:
        raise RecordsError(
            f"{path}: an archive of records has DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json. Found none."
        )
    names = name_workloads(sorted({folder for folder, _ in studies}), has_root=True)
    for (folder, batch_size), study in studies.items():
        yield from _check_study(path / folder / str(batch_size), names[folder], batch_size, study, on_uncovered)


def check_table(path: Path, on_uncovered: OnUncovered = ignore_uncovered) -> Iterator[Violation]:
    """Yield the violations of a table: files that differ from the manifest, and faults of the original texts."""
    manifest = read_manifest(path)
    damaged = False
    for name, entry in manifest["files"].items():
        inside = (path / name).resolve().is_relative_to(path.resolve())
        fault = _file_fault(path / name, entry) if inside else "a name that leads out of the table"
        if fault:
            damaged = True
            yield Violation(path / name, None, "table-file", fault)
    if damaged:
        return
    records = read_table(path)
    originals = open_table_file(path / ORIGINALS, ORIGINAL_SCHEMA)
    for workload in records.workloads:
        names = zip(WORKLOAD_COLUMNS, (workload.dataset, workload.model, workload.optimizer), strict=True)
        texts = originals.filter(*(pl.col(column) == value for column, value in names)).collect()
        measured = records.sources[workload]().select("batch_size", "trial_id").unique().collect()
        for (batch_size,), rows in texts.group_by("batch_size"):
            assert isinstance(batch_size, int)
            study = _study_of(rows, measured.filter(pl.col("batch_size") == batch_size))
            yield from _check_study(path / str(workload) / str(batch_size), workload, batch_size, study, on_uncovered)


def _sorted(violations: Iterator[Violation]) -> list[Violation]:
    return sorted(violations, key=lambda violation: (violation.path.parts, violation.line or 0, violation.rule))


def _add(studies: dict[tuple[str, int], _Study], file: RecordFile) -> bool:
    """Add a file to its study; False, and nothing is changed, if it was there already."""
    study = studies.setdefault((file.folder, file.batch_size), _Study())
    if file.trial_id is None:
        is_new, study.text = study.text is None, study.text or file.data
        return is_new
    if file.name == TRIAL_FILE:
        is_new = file.trial_id not in study.trials
        study.trials.setdefault(file.trial_id, file.data)
        return is_new
    is_new = file.trial_id not in study.headers
    header = file.data.removeprefix(BYTE_ORDER_MARK).partition(b"\n")[0].removesuffix(b"\r")
    study.headers.setdefault(file.trial_id, header)
    study.checksums.setdefault(file.trial_id, measurements_checksum(file.data))
    return is_new


def _read_measurements(
    path: Path, waiting: list[RecordFile], studies: dict[tuple[str, int], _Study]
) -> Iterator[Violation]:
    for folder in sorted({file.folder for file in waiting}):
        yield from _read_workload(path, folder, [file for file in waiting if file.folder == folder], studies)
    waiting.clear()


def _read_workload(
    path: Path, folder: str, files: list[RecordFile], studies: dict[tuple[str, int], _Study]
) -> list[Violation]:
    violations = [
        Violation(path / file.path, 1, "byte-order-mark", "a byte order mark")
        for file in files
        if file.data.startswith(BYTE_ORDER_MARK)
    ]

    def on_faults(batch_size: int, trial_id: int, faults: list[Fault]) -> None:
        studies[folder, batch_size].faulty.add(trial_id)
        where = path / folder / str(batch_size) / str(trial_id) / MEASUREMENTS_FILE
        violations.extend(_violation(where, fault) for fault in faults)

    frame = read_measurement_files(((file.batch_size, file.trial_id or 0, file.data) for file in files), on_faults)
    for batch_size, trial_id in frame.select("batch_size", "trial_id").unique().rows():
        studies[folder, batch_size].measured.add(trial_id)
    return violations


def _check_study(
    folder: Path, workload: WorkloadName, batch_size: int, study: _Study, on_uncovered: OnUncovered
) -> Iterator[Violation]:
    checked = None
    missing = Fault(None, "missing-file", "no such file")
    if study.text is None:
        yield _violation(folder / STUDY_FILE, missing)
    else:
        checked, faults = check_study_text(study.text, workload, batch_size)
        yield from (_violation(folder / STUDY_FILE, fault) for fault in faults)
        if checked is not None and not checked.covered:
            on_uncovered(folder / STUDY_FILE)
    for trial_id in sorted(study.trials.keys() | study.headers.keys()):
        trial = folder / str(trial_id)
        checked_trial = CheckedTrial()
        if trial_id in study.trials:
            checked_trial, faults = check_trial_text(study.trials[trial_id], trial_id, checked)
            yield from (_violation(trial / TRIAL_FILE, fault) for fault in faults)
            if not checked_trial.covered:
                on_uncovered(trial / TRIAL_FILE)
        else:
            yield _violation(trial / TRIAL_FILE, missing)
        if trial_id not in study.headers:
            yield _violation(trial / MEASUREMENTS_FILE, missing)
        elif checked_trial.status is Status.COMPLETE and trial_id not in study.measured | study.faulty:
            yield _violation(trial / MEASUREMENTS_FILE, Fault(None, "no-measurements", "no row"))
        recorded = checked_trial.measurements_sha256
        changed = checksum_fault(recorded, study.checksums.get(trial_id, recorded or ""))
        if changed is not None:
            yield _violation(trial / MEASUREMENTS_FILE, changed)
    for trial_id, fault in header_faults({key: study.headers[key] for key in sorted(study.measured)}):
        yield _violation(folder / str(trial_id) / MEASUREMENTS_FILE, fault)


def _violation(path: Path, fault: Fault) -> Violation:
    return Violation(path, fault.line, fault.rule, fault.found)


def _study_of(texts: pl.DataFrame, measured: pl.DataFrame) -> _Study:
    study = _Study(measured=set(measured["trial_id"]))
    for trial_id, text, header in texts.select("trial_id", "text", "header").rows():
        if trial_id is None:
            study.text = text.encode()
        else:
            study.trials[trial_id] = text.encode()
            study.headers[trial_id] = header.encode()
    return study


def _file_fault(path: Path, entry: dict[str, object]) -> str | None:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return error.strerror or one_line(error)
    return None if digest == entry["sha256"] else f"the SHA-256 {digest}"
