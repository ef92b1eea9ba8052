"""Clean up after a writer that died: finish or undo its commit, load the trials, drop journals that have served.

Only files of the writer's own names in the study's working folder are ever removed, and only when their purpose is
either fulfilled or will be fulfilled again. Anything else (checkpoints, files of other versions) stays.
"""

import re
from collections.abc import Container
from functools import partial
from pathlib import Path

from batchscale.errors import RecordsError
from batchscale.records.durable import remove_folder
from batchscale.records.filesystem import FileSystem
from batchscale.records.model import TrialRecord, parse_trial
from batchscale.records.tree.committed import CommittedTrials
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.journal import decode_journal
from batchscale.records.tree.journals import Journals
from batchscale.records.tree.layout import (
    MAX_CSV_BYTES,
    MEASUREMENTS_FILE,
    TRIAL_FILE,
    StudyPaths,
    folder_number,
)
from batchscale.records.tree.measurements import checksum_fault, measurements_checksum
from batchscale.records.tree.read import Notice, read_trial

_FOLDER = re.compile(r"(new|ready)-([0-9]+)")
_JOURNAL = re.compile(r"journal-([0-9]+)")
STUDY_STAGE = "new-study"


def clean_working_folder(fs: FileSystem, paths: StudyPaths) -> None:
    """Finish or undo the commit that was in progress."""
    if fs.is_dir(paths.folder):
        fs.sync_directory(paths.folder)  # a trial may be visible and not yet durable; its journal may go only after it
    for entry in fs.list_directory(paths.working):
        path = paths.working / entry.name
        match = _FOLDER.fullmatch(entry.name)
        if entry.is_dir and match and match[1] == "ready":
            finish_move(fs, paths, int(match[2]))
        elif entry.is_dir and (match or entry.name == STUDY_STAGE):
            remove_folder(fs, path)
        elif not entry.is_dir and entry.name.endswith(".new"):
            fs.unlink(path)


def finish_move(fs: FileSystem, paths: StudyPaths, trial_id: int) -> None:
    """Move the files of a ready trial into the folder of its older version, measurements first.

    Until the metadata follows, readers see the old metadata beside longer measurements: a legal trial.
    """
    ready, target = paths.ready(trial_id), paths.trial(trial_id)
    if not fs.exists(target):  # the older version was removed
        fs.replace(ready, target)
        fs.sync_directory(target.parent)
        return
    for name in (MEASUREMENTS_FILE, TRIAL_FILE):
        if fs.exists(ready / name):
            fs.replace(ready / name, target / name)
        fs.sync_directory(target)  # also when a dead writer moved it: it may not be durable yet
    remove_folder(fs, ready)


def load_committed(fs: FileSystem, paths: StudyPaths, notice: Notice) -> tuple[CommittedTrials, dict[int, str]]:
    """Return the committed trials by id, and the reason for each trial folder that cannot be read."""
    committed, damaged = CommittedTrials(partial(read_record, fs, paths)), {}
    for entry in fs.list_directory(paths.folder):
        trial_id = folder_number(entry.name)
        if trial_id is None or not entry.is_dir:
            continue
        try:
            record = read_record(fs, paths, trial_id)
            _require_unchanged(fs, f"{paths.folder}/{trial_id}/{MEASUREMENTS_FILE}", record)
        except RecordsError as error:
            damaged[trial_id] = f"{error} Put the trial's folder back from a copy, or move it out of the tree."
            notice(f"{error} The trial is left as it is.")
        else:
            committed.put(record)
    return committed, damaged


def read_record(fs: FileSystem, paths: StudyPaths, trial_id: int) -> TrialRecord:
    """Return the record of a trial in the tree.

    Raises:
        RecordsError: it cannot be read, or is another trial's.
    """
    path = f"{paths.folder}/{trial_id}/{TRIAL_FILE}"  # text: joining a Path costs as much as reading the file
    record = parse_trial(read_file(path, fs=fs), path)
    if record.trial_id != trial_id:
        raise RecordsError(f"{path}: trial_id agrees with the folder. Found {record.trial_id}.")
    return record


def _require_unchanged(fs: FileSystem, path: str, record: TrialRecord) -> None:
    if record.measurements_sha256 is not None:
        fault = checksum_fault(record.measurements_sha256, measurements_checksum(read_file(path, MAX_CSV_BYTES, fs)))
        if fault is not None:
            raise RecordsError(f"{path}: {fault}")


def find_foreign_journals(fs: FileSystem, paths: StudyPaths, journals: Journals, notice: Notice) -> dict[int, str]:
    """Return the error for each trial whose journal is another trial's."""
    foreign = {}
    for trial_id in list_journals(fs, paths.working):
        try:
            journals.require_owner(trial_id, decode_journal(read_file(paths.journal(trial_id), MAX_CSV_BYTES, fs)))
        except RecordsError as error:
            foreign[trial_id] = str(error)
            notice(f"{error} It is left as it is.")
    return foreign


def list_journals(fs: FileSystem, working: Path) -> list[int]:
    """Return the ids of the trials that have a journal, sorted."""
    numbers = (journal_number(entry.name) for entry in fs.list_directory(working))
    return sorted(number for number in numbers if number is not None)


def journal_number(name: str) -> int | None:
    """Return the id of the trial that a file is the journal of; None if it is no journal."""
    match = _JOURNAL.fullmatch(name)
    return None if match is None else int(match[1])


def drop_finished_journals(fs: FileSystem, paths: StudyPaths, committed: Container[int]) -> None:
    """Remove journals without rows beyond those of the committed trial."""
    for trial_id in list_journals(fs, paths.working):
        if trial_id not in committed:
            continue
        path = paths.journal(trial_id)
        journal = decode_journal(read_file(path, MAX_CSV_BYTES, fs))
        try:
            _, table = read_trial(paths.trial(trial_id), fs)
        except RecordsError:
            continue
        if not table.faults and journal.last_step <= max([-1, *table.steps[-1:]]):
            fs.unlink(path)
