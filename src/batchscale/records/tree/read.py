"""Read a records tree into frames.

The reader takes no lock and needs none: a writer never shows half a file. A damaged file costs only its own trial (or,
a damaged ``study.json``, its study): what is sound is kept, and a notice says what is missing.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from batchscale.errors import RecordsError
from batchscale.records.assemble import make_studies_frame, make_trials_frame
from batchscale.records.filesystem import REAL, FileSystem
from batchscale.records.frames import Records
from batchscale.records.metadata.base import NewerFormatError
from batchscale.records.model import StudyRecord, TrialRecord, parse_study, parse_trial
from batchscale.records.rules import Fault
from batchscale.records.tree.bulk import read_measurement_files
from batchscale.records.tree.folders import StudyFolder, iter_studies, list_folder, name_folder, read_file
from batchscale.records.tree.layout import MAX_CSV_BYTES, MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE
from batchscale.records.tree.measurements import MeasurementTable, parse_measurements
from batchscale.spec.workload_name import WorkloadName

Notice = Callable[[str], None]

WORKLOADS_KEPT = 2  # how many workloads' measurements stay in memory once read


def log_notice(text: str) -> None:
    """The notice as a warning of the ``batchscale.records`` logger, which Python prints unless told otherwise."""
    logging.getLogger("batchscale.records").warning("%s", text)


@dataclass(frozen=True)
class StudyContent:
    """A study as found in a tree: its record, its folder, and its readable trials."""

    record: StudyRecord
    folder: StudyFolder
    trials: tuple[TrialRecord, ...]


def read_tree(path: Path, notice: Notice = log_notice, fs: FileSystem = REAL) -> Records:
    """The records of a tree, or of a group, data set, model, workload or study folder of one.

    Studies and trials are read now, measurements when they are asked for, a workload at a time. ``notice`` hears of
    every damaged file and what was done about it.

    Raises:
        RecordsError: the path is no directory, holds no readable study, or has a link that leads outside.
        NewerFormatError: a later batchscale wrote some of it.
    """
    contents: list[StudyContent] = []
    found: dict[tuple[WorkloadName, int], Path] = {}
    for folder in iter_studies(path, fs):
        content = _read_study(folder, path, notice, fs)
        if content is None:
            continue
        key = (content.record.workload, content.record.batch_size)
        if key in found:
            notice(f"{folder.path}: left out, because {found[key]} is the same study.")
            continue
        found[key] = folder.path
        contents.append(content)
    if not contents:
        raise RecordsError(
            f"A records tree holds DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json. Found no readable study in {path}."
        )
    return _make_records(contents, notice, fs)


def read_trial(folder: Path, fs: FileSystem = REAL) -> tuple[TrialRecord, MeasurementTable]:
    """The metadata and measurements of one trial's folder; the table says what is wrong with it.

    Raises:
        RecordsError: a file is missing or ``metadata.json`` is damaged.
    """
    metadata = folder / TRIAL_FILE
    record = parse_trial(read_file(metadata, fs=fs), str(metadata))
    return record, parse_measurements(read_file(folder / MEASUREMENTS_FILE, MAX_CSV_BYTES, fs))


def describe_faults(path: Path | str, faults: list[Fault]) -> str:
    """One notice about a measurements file of which only a part could be kept."""
    more = f" There are {len(faults) - 1} more such places." if len(faults) > 1 else ""
    return f"{path}: only the sound rows are kept. {str(faults[0])[:1].upper()}{str(faults[0])[1:]}{more}"


def _read_study(folder: StudyFolder, root: Path, notice: Notice, fs: FileSystem) -> StudyContent | None:
    path = folder.path / STUDY_FILE
    try:
        text = read_file(path, fs=fs)
        workload, batch_size = name_folder(folder, text)
        record = parse_study(text, workload, str(path))
        if record.batch_size != batch_size:
            raise RecordsError(f"{path}: batch_size agrees with the folder. Found {record.batch_size}.")
    except NewerFormatError:
        raise  # a part of the studies would look like all of them
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
    """Where the measurements of a study's trials are: all that has to be remembered until they are asked for."""

    batch_size: int
    folder: Path
    trial_ids: tuple[int, ...]

    def table(self, trial_id: int) -> Path:
        """The measurements of a trial."""
        return self.folder / str(trial_id) / MEASUREMENTS_FILE


def _make_records(contents: list[StudyContent], notice: Notice, fs: FileSystem) -> Records:
    by_workload: dict[WorkloadName, list[_MeasuredStudy]] = {}
    for content in contents:
        trial_ids = tuple(trial.trial_id for trial in content.trials)
        measured = _MeasuredStudy(content.record.batch_size, content.folder.path, trial_ids)
        by_workload.setdefault(content.record.workload, []).append(measured)

    @functools.lru_cache(maxsize=WORKLOADS_KEPT)
    def measurements(name: WorkloadName) -> pl.DataFrame:
        return _read_measurements(by_workload[name], notice, fs)

    def source(name: WorkloadName) -> Callable[[], pl.LazyFrame]:
        return lambda: measurements(name).lazy()

    return Records(
        studies=make_studies_frame(content.record for content in contents),
        trials=make_trials_frame((content.record, trial) for content in contents for trial in content.trials),
        sources={name: source(name) for name in by_workload},
    )


def _read_measurements(studies: list[_MeasuredStudy], notice: Notice, fs: FileSystem) -> pl.DataFrame:
    of_size = {study.batch_size: study for study in studies}

    def on_faults(batch_size: int, trial_id: int, faults: list[Fault]) -> None:
        notice(describe_faults(of_size[batch_size].table(trial_id), faults))

    def files() -> Iterator[tuple[int, int, bytes]]:
        for study in studies:
            for trial_id in study.trial_ids:
                try:
                    yield study.batch_size, trial_id, read_file(study.table(trial_id), MAX_CSV_BYTES, fs)
                except RecordsError as error:
                    notice(f"{error} The trial has no measurements.")

    return read_measurement_files(files(), on_faults)
