"""The committed trials of a study, in little memory: the numbers of each trial that a run needs at all times.

A whole record takes some thousands of bytes, and a run may have hundreds of thousands of them: a whole record is read
from the disk again.

A writer that died may leave a commit half done. `clean_working_folder` and `load_committed` finish or undo it and drop
obsolete journals. Only files of the writer's own names in the study's working folder are removed, and only when their
purpose is fulfilled or will be fulfilled again. Anything else (checkpoints, files of other versions) stays.
"""

import math
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from batchscale.errors import RecordsError
from batchscale.records.durable import FileSystem, remove_folder
from batchscale.records.model import Status, TrialRecord, parse_trial
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

_STATUSES = tuple(Status)
_NONE = -1


@dataclass(frozen=True, slots=True)
class CommittedTrial:
    """The outcome of a committed trial; ``best`` is None where the record has none."""

    trial_id: int
    status: Status
    steps: int
    parameters: Mapping[str, float]
    reached_at: int | None
    best: float | None


class CommittedTrials(Mapping[int, TrialRecord]):
    """The trials by growing id; ``read`` reads a whole record from the disk."""

    def __init__(self, read: Callable[[int], TrialRecord]) -> None:
        self._read = read
        self._ids = array("q")
        self._statuses = array("b")
        self._steps = array("q")
        self._reached = array("q")
        self._best = array("d")
        self._parameters: dict[str, array[float]] = {}  # NaN: the trial has no such metaparameter
        self.counts: Counter[Status] = Counter()

    def __getitem__(self, trial_id: int) -> TrialRecord:
        if trial_id not in self:
            raise KeyError(trial_id)
        return self._read(trial_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, trial_id: object) -> bool:
        return isinstance(trial_id, int) and self._find(trial_id)[1]

    def put(self, record: TrialRecord) -> None:
        """Add a trial that was committed, or replace one that was committed again."""
        place, exists = self._find(record.trial_id)
        metadata = record.metadata
        reached = _NONE if metadata is None or metadata.reached_at is None else metadata.reached_at
        best = math.nan if metadata is None or metadata.best is None else metadata.best
        for name in record.parameters:
            if name not in self._parameters:
                self._parameters[name] = array("d", [math.nan]) * len(self._ids)
        columns: list[tuple[array[int] | array[float], float]] = [
            (self._ids, record.trial_id),
            (self._statuses, _STATUSES.index(record.status)),
            (self._steps, record.steps),
            (self._reached, reached),
            (self._best, best),
            *((column, record.parameters.get(name, math.nan)) for name, column in self._parameters.items()),
        ]
        if exists:
            self.counts[_STATUSES[self._statuses[place]]] -= 1
        for column, value in columns:
            if exists:
                column[place] = value  # type: ignore[call-overload]  # each column has values of its kind
            else:
                column.insert(place, value)  # type: ignore[arg-type]
        self.counts[record.status] += 1

    def trial(self, trial_id: int) -> CommittedTrial:
        """Return one trial."""
        place, exists = self._find(trial_id)
        if not exists:
            raise KeyError(trial_id)
        return self._trial(place)

    def trials(self) -> Iterator[CommittedTrial]:
        """Return all trials, by growing id."""
        return map(self._trial, range(len(self._ids)))

    def _trial(self, place: int) -> CommittedTrial:
        reached, best = self._reached[place], self._best[place]
        values = {name: column[place] for name, column in self._parameters.items()}
        return CommittedTrial(
            self._ids[place],
            _STATUSES[self._statuses[place]],
            self._steps[place],
            {name: value for name, value in values.items() if not math.isnan(value)},
            None if reached == _NONE else reached,
            None if math.isnan(best) else best,
        )

    def _find(self, trial_id: int) -> tuple[int, bool]:
        """Return the position of a trial, or the one to insert it at, and True if it exists."""
        place = bisect_left(self._ids, trial_id)
        return place, place < len(self._ids) and self._ids[place] == trial_id


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
