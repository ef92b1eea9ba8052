"""The recorder of a study: it alone writes, and reads again what is recorded.

A full disk may refuse any of its calls: then nothing is forgotten, and the same call is made again later.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from batchscale.records.metadata.trial import Hardware
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.committed import CommittedTrials
from batchscale.records.tree.writer import StudyWriter
from batchscale.spec.goal import Goal
from batchscale.study.failure import Failure
from batchscale.study.guards import TrialResult
from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Ending
from batchscale.study.study_facts import DamagedStudyError, recall, trial_facts
from batchscale.study.tasks import Row, TrialProgress
from batchscale.study.trial_store import TrialStore


@dataclass(frozen=True)
class EndedTrial:
    """A trial that is to become a record. ``failed`` says why it could not be trained, if it could not."""

    trial_id: int
    ending: Ending
    parameters: Mapping[str, float]
    seed: int
    search: int
    point: int
    failed: Failure | None = None


class Recorder:
    """Journals, commits and ``study.json`` of one study."""

    def __init__(self, writer: StudyWriter, goal: Goal, evaluation_steps: Sequence[int] | None) -> None:
        """The recorder of an opened study; recorded trials that train longer must have all ``evaluation_steps``."""
        self._writer = writer
        self._goal = goal
        self._store = TrialStore(writer, evaluation_steps)
        self._refused: StudyRecord | None = None

    @property
    def records(self) -> CommittedTrials:
        """The recorded trials by id."""
        return self._writer.committed_trials()

    @property
    def running(self) -> list[int]:
        """The trials that have a journal."""
        return self._store.journaled

    def read_known(self, retry: bool = False) -> dict[int, Knowledge]:
        """What is known of every trial that has a record or a journal; with ``retry`` INCOMPLETE ones may go on.

        Raises:
            DamagedStudyError: something there cannot be read.
        """
        for trial_id, reason in self._writer.damaged_trials.items():
            raise DamagedStudyError(
                f"{self._writer.folder}: trial {trial_id} is not as it was recorded: {reason} Then run again."
            )
        return {trial_id: self.know(trial_id, retry) for trial_id in (*self.records, *self.running)}

    def know(self, trial_id: int, retry: bool = False) -> Knowledge:
        """What is known of one trial that has a record or a journal."""
        known = Knowledge()
        if trial_id in self.records:
            trial = self.records.trial(trial_id)
            if not (retry and trial.status is Status.INCOMPLETE):
                known = recall(trial, self._read_failure)
        if self._store.has_journal(trial_id) or known.recorded is None:
            known.learn(self._store.rows(trial_id), None, self._goal)
        return known

    def results(self) -> list[TrialResult]:
        """What the guards must know of the trials that came to their end, by id."""
        found = []
        for trial in self.records.trials():
            if trial.status is not Status.INCOMPLETE:
                diverged = trial.status is Status.INFEASIBLE
                reached_at = None if diverged else trial.reached_at
                best = math.inf if trial.best is None else trial.best
                found.append(TrialResult(trial.trial_id, trial.parameters, reached_at, best, diverged))
        return found

    def _read_failure(self, trial_id: int) -> str | None:
        facts = self.records[trial_id].metadata
        return None if facts is None else facts.failure

    def _learn(self, rows: Sequence[Row]) -> Knowledge:
        known = Knowledge()
        known.learn(rows, None, self._goal)
        return known

    # --- trials ----------------------------------------------------------------------------------------------

    def add(self, progress: TrialProgress, rows: Sequence[Row], seconds: float, hardware: Hardware | None) -> None:
        """New measurements of a trial, and where the time went; they are in memory until they are worth a journal."""
        self._store.add(progress.trial_id, rows, progress.timing, seconds, progress.hardware or hardware)

    @property
    def journal_due(self) -> bool:
        """Whether enough training waits in memory."""
        return self._store.journal_due

    def write_journals(self, until: float = float("inf")) -> None:
        """Make what was added survive this process, as long as the monotonic clock is before ``until``."""
        self._store.write_journals(until)

    def commit(self, trial: EndedTrial) -> Knowledge:
        """Make a trial a record; what is known of it within its end."""
        ending = trial.ending
        rows = [row for row in self._store.rows(trial.trial_id) if row[0] <= ending.step]
        within = self._learn(rows)  # rows beyond the end were computed for nothing and leave no trace
        within.failed = trial.failed
        timing, hardware = self._store.cost(trial.trial_id)
        facts = replace(
            trial_facts(trial.seed, trial.search, trial.point, within, ending.reason),
            diverged_at=ending.step if ending.status is Status.INFEASIBLE else None,
            timing=timing,
            hardware=hardware,
        )
        record = TrialRecord(trial.trial_id, ending.status, ending.step, trial.parameters, facts)
        self._store.commit(record, rows)
        return within

    def discard(self, trial_id: int) -> None:
        """Forget a trial that is not needed."""
        self._store.discard(trial_id)

    # --- the study -------------------------------------------------------------------------------------------

    def write_study(self, record: StudyRecord) -> None:
        """Bring ``study.json`` up to date."""
        self._refused = record
        self._writer.update(record)
        self._refused = None

    @property
    def refused(self) -> bool:
        """Whether the disk refused a ``study.json``."""
        return self._refused is not None

    def repeat_refused(self) -> None:
        """Write the ``study.json`` that the disk refused: before anything else is trained or recorded."""
        if self._refused is not None:
            self.write_study(self._refused)

    def close(self) -> None:
        """Give back the study's lock."""
        self._writer.close()
