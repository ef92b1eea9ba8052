"""Read a records tree into frames.

The reader takes no lock and needs none: a writer never shows half a file. A damaged file costs only its own trial (or,
a damaged ``study.json``, its study): the rest is read, and a notice names what is missing.
"""

import functools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from batchscale.errors import RecordsError
from batchscale.records.durable import REAL, FileSystem
from batchscale.records.frames import STUDY_COLUMNS, STUDY_SCHEMA, TRIAL_SCHEMA, Records
from batchscale.records.metadata.base import NewerFormatError
from batchscale.records.metadata.columns import METADATA, study_metadata_row, trial_metadata_row
from batchscale.records.model import StudyRecord, TrialRecord, parse_study, parse_trial
from batchscale.records.rules import Fault
from batchscale.records.tree.bulk import read_measurement_files
from batchscale.records.tree.folders import StudyFolder, iter_studies, list_folder, name_folder, read_file
from batchscale.records.tree.layout import MAX_CSV_BYTES, MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE, StudyPaths
from batchscale.records.tree.measurements import (
    MeasurementTable,
    checksum_fault,
    measurements_checksum,
    parse_measurements,
)
from batchscale.spec.workload_name import WorkloadName

Notice = Callable[[str], None]

CACHED_WORKLOADS = 2  # workloads whose measurements stay in memory once read
MAX_PARAMETER_COLUMNS = 1_000
_TRIES = 3  # of a trial that a writer replaces while it is read


def log_notice(text: str) -> None:
    """Log the notice as a warning of the ``batchscale.records`` logger, which Python prints by default."""
    logging.getLogger("batchscale.records").warning("%s", text)


class Notices:
    """The notices of one set of records: each text is passed on once, and all are listed in ``texts``."""

    def __init__(self, notice: Notice) -> None:
        self.texts: list[str] = []
        self._notice = notice

    def add(self, text: str) -> None:
        """Add a notice."""
        if text not in self.texts:
            self.texts.append(text)
            self._notice(text)


@dataclass(frozen=True)
class StudyContent:
    """A study in a tree: its record, its folder, and its readable trials."""

    record: StudyRecord
    folder: StudyFolder
    trials: tuple[TrialRecord, ...]


def read_tree(path: Path, notice: Notice = log_notice, fs: FileSystem = REAL) -> Records:
    """Return the records of a tree, or of a group, data set, model, workload or study folder of one.

    Studies and trials are read now, measurements when they are needed, a workload at a time. ``notice`` is called with
    a text for every damaged file.

    Raises:
        RecordsError: the path is no directory, holds no readable study, or has a link that leads outside.
        NewerFormatError: a later batchscale wrote some of it.
    """
    contents: list[StudyContent] = []
    notices = Notices(notice)
    paths: dict[tuple[WorkloadName, int], Path] = {}
    for folder in iter_studies(path, fs):
        content = _read_study(folder, path, notices.add, fs)
        if content is None:
            continue
        key = (content.record.workload, content.record.batch_size)
        if key in paths:
            notices.add(f"{folder.path}: left out, because {paths[key]} is the same study.")
            continue
        paths[key] = folder.path
        contents.append(content)
    if not contents:
        raise RecordsError(
            f"A records tree holds DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json. Found no readable study in {path}."
        )
    return _make_records(contents, notices, fs)


def read_trial(folder: Path, fs: FileSystem = REAL) -> tuple[TrialRecord, MeasurementTable]:
    """Return the metadata and measurements of one trial's folder; the table has its faults.

    Raises:
        RecordsError: a file is missing or ``metadata.json`` is damaged.
    """
    metadata = folder / TRIAL_FILE
    record = parse_trial(read_file(metadata, fs=fs), str(metadata))
    return record, parse_measurements(read_file(folder / MEASUREMENTS_FILE, MAX_CSV_BYTES, fs))


def describe_faults(path: Path | str, faults: list[Fault]) -> str:
    """Return the notice for a measurements file of which only a part could be read."""
    more = f" There are {len(faults) - 1} more such places." if len(faults) > 1 else ""
    return f"{path}: only the sound rows are used. {str(faults[0])[:1].upper()}{str(faults[0])[1:]}{more}"


def _read_study(folder: StudyFolder, root: Path, notice: Notice, fs: FileSystem) -> StudyContent | None:
    path = folder.path / STUDY_FILE
    try:
        text = read_file(path, fs=fs)
        workload, batch_size = name_folder(folder, text)
        record = parse_study(text, workload, str(path))
        if record.batch_size != batch_size:
            raise RecordsError(f"{path}: batch_size agrees with the folder. Found {record.batch_size}.")
    except NewerFormatError:
        raise  # the rest of the studies would pass for all of them
    except RecordsError as error:
        notice(f"{error} The study is left out.")
        return None
    return StudyContent(record, folder, tuple(_read_trials(folder, root, notice, fs)))


def _read_trials(folder: StudyFolder, root: Path, notice: Notice, fs: FileSystem) -> Iterator[TrialRecord]:
    base = fs.resolve(root)
    for trial_id in folder.trial_ids:
        path = folder.path / str(trial_id) / TRIAL_FILE
        list_folder(base, path.parent, fs)  # refuses links that lead outside
        try:
            record = parse_trial(read_file(path, fs=fs), str(path))
            if record.trial_id != trial_id:
                raise RecordsError(f"{path}: trial_id agrees with the folder. Found {record.trial_id}.")
        except NewerFormatError:
            raise
        except RecordsError as error:
            notice(f"{error} The trial is left out.")
            continue
        yield record


@dataclass(frozen=True)
class _MeasuredStudy:
    """The paths of the measurements of a study's trials, with their recorded checksums by trial id."""

    workload: WorkloadName
    batch_size: int
    folder: Path
    checksums: Mapping[int, str | None]

    def path(self, trial_id: int) -> Path:
        """Return the path of a trial's measurements."""
        return self.folder / str(trial_id) / MEASUREMENTS_FILE


def _make_records(contents: list[StudyContent], notices: Notices, fs: FileSystem) -> Records:
    by_workload: dict[WorkloadName, list[_MeasuredStudy]] = {}
    for content in contents:
        record = content.record
        checksums = {trial.trial_id: trial.measurements_sha256 for trial in content.trials}
        measured = _MeasuredStudy(record.workload, record.batch_size, content.folder.path, checksums)
        by_workload.setdefault(content.record.workload, []).append(measured)

    @functools.lru_cache(maxsize=CACHED_WORKLOADS)
    def measurements(name: WorkloadName) -> pl.DataFrame:
        return _read_measurements(by_workload[name], notices.add, fs)

    def source(name: WorkloadName) -> Callable[[], pl.LazyFrame]:
        return lambda: measurements(name).lazy()

    return Records(
        studies=make_studies_frame(content.record for content in contents),
        trials=make_trials_frame((content.record, trial) for content in contents for trial in content.trials),
        sources={name: source(name) for name in by_workload},
        notices=notices.texts,
    )


def _read_measurements(studies: list[_MeasuredStudy], notice: Notice, fs: FileSystem) -> pl.DataFrame:
    of_size = {study.batch_size: study for study in studies}

    def on_faults(batch_size: int, trial_id: int, faults: list[Fault]) -> None:
        notice(describe_faults(of_size[batch_size].path(trial_id), faults))

    def files() -> Iterator[tuple[int, int, bytes]]:
        for study in studies:
            for trial_id in study.checksums:
                try:
                    text = read_file(study.path(trial_id), MAX_CSV_BYTES, fs)
                    if checksum_fault(study.checksums[trial_id], measurements_checksum(text)):
                        text = _read_changed(study, trial_id, notice, fs)
                    yield study.batch_size, trial_id, text
                except RecordsError as error:
                    notice(f"{error} The trial has no measurements.")

    return read_measurement_files(files(), on_faults)


def _read_changed(study: _MeasuredStudy, trial_id: int, notice: Notice, fs: FileSystem) -> bytes:
    """Return measurements that differ from the checksum read before, with a notice unless a writer replaced them.

    A trial may have been committed again since its metadata was read, or be half replaced where folders cannot be
    exchanged: its metadata is read again.
    """
    path = study.path(trial_id)
    for _ in range(_TRIES):
        record = parse_trial(read_file(path.with_name(TRIAL_FILE), fs=fs), str(path.with_name(TRIAL_FILE)))
        text = read_file(path, MAX_CSV_BYTES, fs)
        fault = checksum_fault(record.measurements_sha256, measurements_checksum(text))
        if fault is None:
            return text
    root = study.folder.absolute().parents[study.workload.dataset.count("/") + 3]
    if not fs.exists(StudyPaths.of(root, study.workload, study.batch_size).ready(trial_id)):
        notice(
            f"{path}: {fault} The changed numbers are used: do not rely on the result. Put the file back from a copy, "
            "or move the trial's folder out of the tree."
        )
    return text


def make_studies_frame(studies: Iterable[StudyRecord]) -> pl.DataFrame:
    """Return a frame with one row per study, sorted by workload and batch size."""
    rows = [
        {
            **_study_key(study),
            "train_steps": study.train_steps,
            "early_stopping": study.early_stopping,
            "parameter_configs": json.dumps(study.space.to_json(), sort_keys=True),
            METADATA: study_metadata_row(study.metadata),
            "extra": json.dumps(dict(study.extra), sort_keys=True),
        }
        for study in studies
    ]
    return pl.DataFrame(rows, schema=dict(STUDY_SCHEMA)).sort(STUDY_COLUMNS)


def make_trials_frame(trials: Iterable[tuple[StudyRecord, TrialRecord]]) -> pl.DataFrame:
    """Return a frame with one row per trial, sorted by workload, batch size and trial id.

    There is a column for each metaparameter.
    """
    columns: dict[str, list[object]] = {name: [] for name in TRIAL_SCHEMA}
    parameters: dict[str, list[float | None]] = {}
    count = 0
    for study, trial in trials:
        row = {
            **_study_key(study),
            "trial_id": trial.trial_id,
            "status": trial.status.value,
            "steps": trial.steps,
            METADATA: trial_metadata_row(trial.metadata),
            "extra": json.dumps(dict(trial.extra), sort_keys=True),
        }
        for name, value in row.items():
            columns[name].append(value)
        for name, number in trial.parameters.items():
            cells = parameters.setdefault(name, [])
            if len(parameters) > MAX_PARAMETER_COLUMNS:
                raise RecordsError(
                    f"All trials together have at most {MAX_PARAMETER_COLUMNS:,} different metaparameters. Found more "
                    f"at trial {trial.trial_id} of {study.workload}/{study.batch_size}; read a part of the tree."
                )
            cells.extend([None] * (count - len(cells)))
            cells.append(float(number))
        count += 1
    frame = pl.DataFrame(columns, schema=dict(TRIAL_SCHEMA))
    series = [
        pl.Series(name, cells + [None] * (count - len(cells)), dtype=pl.Float64)
        for name, cells in sorted(parameters.items())
    ]
    return frame.with_columns(series).sort(*STUDY_COLUMNS, "trial_id")


def _study_key(study: StudyRecord) -> dict[str, str | int]:
    name = study.workload
    return {
        "dataset": name.dataset,
        "model": name.model,
        "optimizer": name.optimizer,
        "batch_size": study.batch_size,
    }
