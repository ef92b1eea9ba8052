"""Write the studies of a records tree so that neither a kill nor the loss of power damages them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from batchscale.errors import RecordsError, one_line
from batchscale.records.durable import FileSystem, remove_folder, replace_file, storing, write_file
from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.model import StudyRecord, TrialRecord, study_text, trial_text
from batchscale.records.tree.committed import (
    CommittedTrials,
    drop_finished_journals,
    find_foreign_journals,
    finish_move,
    list_journals,
    load_committed,
)
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.journal import JournalText, journal_of_csv
from batchscale.records.tree.journals import Journals
from batchscale.records.tree.layout import MAX_CSV_BYTES, MEASUREMENTS_FILE, TRIAL_FILE, StudyPaths
from batchscale.records.tree.measurements import (
    Measurement,
    MeasurementTable,
    csv_text,
    measurements_checksum,
    parse_measurements,
)
from batchscale.records.tree.read import Notice


class StudyWriter:
    """The one writer of one study. Made by ``open_study``; used by one thread at a time.

    Promises:

    - **One writer.** It holds an ``flock`` on a file of the working folder until it is closed or its process dies, and
      no longer. Other studies of the same tree can be written at the same time.
    - **Whole trials.** A trial's folder appears in the tree with both files complete, or not at all, and is durable
      when ``commit`` returns. A trial committed again (it trained longer) is exchanged for the new version in one step,
      where the file system can; elsewhere its measurements are replaced first, then its metadata.
    - **Measurements survive.** Once ``append`` returns they survive the death of the process, and with ``sync`` the
      loss of power. A line torn by a kill is cut off when the journal is next used, with a notice.
    - **Nothing else in the tree.** Working files live under ``.batchscale`` only.
    - **A full disk is a pause.** When the file system refuses, ``StorageError`` is raised with its ``errno``, committed
      trials are untouched, and the same call can be made again.
    - **Nothing is deleted** but working files that have served. A damaged trial folder stays, is listed in
      ``damaged_trials``, and is never written over.
    """

    def __init__(self, paths: StudyPaths, record: StudyRecord, lock: int, fs: FileSystem, notice: Notice) -> None:
        self._paths = paths
        self._record = record
        self._lock: int | None = lock
        self._fs = fs
        self._notice = notice
        self._journals = Journals(fs, paths, notice)
        self._journals.spec_hash = record.spec_hash
        self._committed, self._damaged = load_committed(fs, paths, notice)
        drop_finished_journals(fs, paths, self._committed)
        self._damaged |= find_foreign_journals(fs, paths, self._journals, notice)

    @property
    def record(self) -> StudyRecord:
        """The study, as in ``study.json``."""
        return self._record

    @property
    def folder(self) -> Path:
        """The study's folder in the tree."""
        return self._paths.folder

    @property
    def working_folder(self) -> Path:
        """The study's working folder, where its checkpoints live too."""
        return self._paths.working

    @property
    def checkpoints(self) -> Path:
        """The states of trials that are trained one by one."""
        return self._paths.checkpoints

    def chosen(self, trial_id: int) -> Path:
        """Return the file of a running trial's metaparameters and seed, if they were chosen by hand."""
        return self._paths.chosen(trial_id)

    @property
    def damaged_trials(self) -> Mapping[int, str]:
        """The trials that were not as recorded when the study was opened, with the reason and the remedy."""
        return MappingProxyType(self._damaged)

    def committed_trials(self) -> CommittedTrials:
        """Return the trials in the tree, by id; do not change it."""
        return self._committed

    def running_trials(self) -> list[int]:
        """Return the ids of the trials that have a journal."""
        with self._storing("listing the running trials"):
            return list_journals(self._fs, self._paths.working)

    def update(self, record: StudyRecord) -> None:
        """Replace ``study.json``, for a new space or a further search; the workload and batch size stay."""
        if (record.workload, record.batch_size) != (self._record.workload, self._record.batch_size):
            raise RecordsError(f"{self.folder}: a study keeps its workload and batch size. Found {record.workload}.")
        text = study_text(record)
        with self._storing("writing study.json"):
            replace_file(self._fs, self._paths.study_file, self._paths.working, text)
        self._record = record
        self._journals.spec_hash = record.spec_hash

    def append(self, trial_id: int, measurements: Iterable[Measurement], *, sync: bool = True) -> None:
        """Add measurements of a running trial. The first ones fix its metrics; steps must grow.

        With ``sync`` they are durable on return (some milliseconds); without, they survive the process only. If the
        file system refuses, none of them counts, and the same call can be made again.
        """
        _require_trial_id(trial_id)
        batch = list(measurements)
        if not batch:
            return
        with self._storing("writing measurements"):
            self._journals.append(trial_id, batch, sync)

    def journal(self, trial_id: int) -> MeasurementTable | None:
        """Return the measurements of a running trial so far, or None if it has no journal."""
        with self._storing("reading the journal"):
            text = self._journals.load(trial_id)
        return None if text is None else parse_measurements(text.to_csv())

    def discard(self, trial_id: int) -> None:
        """Remove the measurements of a running trial; a committed version of it stays."""
        with self._storing("removing the journal"):
            self._journals.remove(trial_id)

    def reopen(self, trial_id: int) -> None:
        """Start the journal of a committed trial from its measurements, so that it can train longer.

        The committed version stays in the tree until the next ``commit``. An existing journal stays.
        """
        if trial_id not in self._committed:
            raise RecordsError(f"{self.folder}: only a committed trial can be reopened. Found trial {trial_id}.")
        path = self._paths.trial(trial_id) / MEASUREMENTS_FILE
        with self._storing("reopening a trial"):
            if self._journals.exists(trial_id):
                return
            text, faults = journal_of_csv(read_file(path, MAX_CSV_BYTES, self._fs))
            if faults:
                raise RecordsError(f"{path}: only a sound trial can be reopened; {faults[0]}")
            self._journals.write(trial_id, text)

    def read_measurements(self, trial_id: int) -> MeasurementTable:
        """Return the measurements of a committed trial."""
        path = self._paths.trial(trial_id) / MEASUREMENTS_FILE
        return parse_measurements(read_file(path, MAX_CSV_BYTES, self._fs))

    def commit(self, trial: TrialRecord, measurements: Iterable[Measurement] | None = None) -> None:
        """Add a trial to the tree, with these measurements or else those of its journal, which is then removed.

        On return the trial is durable; after a failure the tree has the old version, or the new one, whole.
        """
        _require_trial_id(trial.trial_id)
        if trial.trial_id in self._damaged:
            raise RecordsError(self._damaged[trial.trial_id])
        with self._storing(f"committing trial {trial.trial_id}"):
            text = self._measurements_to_commit(trial, measurements)
            metadata = replace(trial.metadata or TrialMetadata(), measurements_sha256=measurements_checksum(text))
            trial = replace(trial, metadata=metadata)
            self._stage(trial.trial_id, text, trial_text(trial))
            self._publish(trial.trial_id)
            self._committed.put(trial)
            self._journals.remove(trial.trial_id)

    def close(self) -> None:
        """Release the lock. Journals stay."""
        if self._lock is not None:
            self._journals.close_all()
            lock, self._lock = self._lock, None
            self._fs.close(lock)

    def __enter__(self) -> "StudyWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stage(self, trial_id: int, measurements: bytes, metadata: bytes) -> None:
        fs, staged = self._fs, self._paths.staged(trial_id)
        if fs.exists(self._paths.ready(trial_id)):  # an earlier commit stopped half-way, e.g. on a full disk
            finish_move(fs, self._paths, trial_id)
        if fs.exists(staged):
            remove_folder(fs, staged)
        fs.mkdir(staged)
        write_file(fs, staged / MEASUREMENTS_FILE, measurements)
        write_file(fs, staged / TRIAL_FILE, metadata)
        fs.sync_directory(staged)

    def _publish(self, trial_id: int) -> None:
        fs, staged, target = self._fs, self._paths.staged(trial_id), self._paths.trial(trial_id)
        if not fs.exists(target):
            fs.replace(staged, target)
            fs.sync_directory(target.parent)
        elif fs.exchange(staged, target):
            fs.sync_directory(target.parent)
            remove_folder(fs, staged)
        else:
            fs.replace(staged, self._paths.ready(trial_id))
            fs.sync_directory(self._paths.working)
            finish_move(fs, self._paths, trial_id)

    def _measurements_to_commit(self, trial: TrialRecord, measurements: Iterable[Measurement] | None) -> bytes:
        if measurements is None:
            journal = self._journals.load(trial.trial_id)
            if journal is None and trial.trial_id in self._committed:
                raise RecordsError(f"Trial {trial.trial_id} is committed; reopen it before it is committed again.")
            text = (journal or JournalText((), (), 0)).to_csv()
            last = journal.last_step if journal else -1
        else:
            text = csv_text(measurements)
            table = parse_measurements(text)
            if table.faults:
                raise RecordsError(f"Trial {trial.trial_id}, {table.faults[0]}")
            last = max([-1, *table.steps[-1:]])
        if last > trial.steps:
            raise RecordsError(
                f"Trial {trial.trial_id}: no measurement is later than the steps taken. Found a measurement at step "
                f"{last} and steps {trial.steps}."
            )
        return text

    @contextmanager
    def _storing(self, what: str) -> Iterator[None]:
        if self._lock is None:
            raise RecordsError(f"{self.folder}: the study is closed; open it again to write.")
        with storing(what, self.folder):
            yield


def _require_trial_id(trial_id: int) -> None:
    if isinstance(trial_id, bool) or not isinstance(trial_id, int) or trial_id < 1:
        raise RecordsError(f"Trial ids are whole numbers from 1. Found {one_line(repr(trial_id))}.")
