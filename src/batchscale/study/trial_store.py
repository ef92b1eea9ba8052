"""The measurements of a study's running trials on their way to the records: in memory, in journals, committed.

A trial that is over before its measurements were worth a journal is committed straight from memory: a journal costs
two synced writes, which is much for a trial of a tenth of a second.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from batchscale.errors import RecordsError, one_line
from batchscale.records.metadata.trial import Hardware, Timing
from batchscale.records.model import Status, TrialRecord
from batchscale.records.tree.measurements import Measurement, MeasurementTable
from batchscale.records.tree.writer import StudyWriter
from batchscale.study.study_facts import DamagedStudyError, recorded_seconds, table_rows
from batchscale.study.tasks import Row

JOURNAL_AFTER_S = 2.0
"""A study's measurements wait in memory until so much training is in them."""


@dataclass
class _Waiting:
    rows: list[Row] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)
    hardware: Hardware | None = None
    seconds: float = 0.0


class TrialStore:
    """Keeps what trials measured until they are committed. A refused write loses nothing and can be repeated."""

    def __init__(self, writer: StudyWriter, evaluation_steps: Sequence[int] | None) -> None:
        self.writer = writer
        self._evaluation_steps = evaluation_steps
        self._waiting: dict[int, _Waiting] = {}
        self._journaled = set(writer.running_trials())
        self._waiting_s = 0.0

    @property
    def journaled(self) -> list[int]:
        """The trials that have a journal."""
        return sorted(self._journaled)

    def has_journal(self, trial_id: int) -> bool:
        """Whether a trial has a journal."""
        return trial_id in self._journaled

    def add(
        self,
        trial_id: int,
        rows: Iterable[Row],
        timing: Mapping[str, float],
        seconds: float,
        hardware: Hardware | None,
    ) -> None:
        """New measurements of a trial, growing steps, and where the time went."""
        waiting = self._waiting.setdefault(trial_id, _Waiting())
        waiting.rows += rows
        waiting.timing, waiting.hardware = Timing.of(timing), hardware
        waiting.seconds += seconds
        self._waiting_s += seconds

    @property
    def journal_due(self) -> bool:
        """Whether enough training waits in memory."""
        return self._waiting_s > JOURNAL_AFTER_S

    def write_journals(self, until: float = float("inf")) -> None:
        """Put waiting measurements into journals: from then on they survive this process."""
        for trial_id, waiting in self._waiting.items():
            if waiting.rows:
                self._journal(trial_id, waiting)
                if time.monotonic() >= until:
                    return
        self._waiting_s = 0.0

    def rows(self, trial_id: int) -> list[Row]:
        """All measurements of a trial that is not over, or of a recorded one that trained longer."""
        waiting = self._waiting.get(trial_id, _Waiting())
        return [*self._stored_rows(trial_id), *waiting.rows]

    def cost(self, trial_id: int) -> tuple[Timing, Hardware | None]:
        """Where the time of the trial went in its last job, with all its seconds that are known, and on what it ran."""
        waiting = self._waiting.get(trial_id, _Waiting())
        before = self.writer.committed_trials().get(trial_id)
        seconds = waiting.seconds + (0.0 if before is None else recorded_seconds(before))
        return replace(waiting.timing, total_s=round(seconds, 6)), waiting.hardware

    def commit(self, record: TrialRecord, rows: Iterable[Row]) -> None:
        """Make the trial a record, with these of its measurements."""
        self.writer.commit(record, [Measurement(*row) for row in rows])
        self._journaled.discard(record.trial_id)
        self._waiting.pop(record.trial_id, None)

    def discard(self, trial_id: int) -> None:
        """Forget a trial that is not needed."""
        self.writer.discard(trial_id)
        self._journaled.discard(trial_id)
        self._waiting.pop(trial_id, None)

    def _stored_rows(self, trial_id: int) -> list[Row]:
        table = None
        if trial_id in self._journaled:
            table = self.writer.journal(trial_id)
        elif trial_id in self.writer.committed_trials():
            table = self._sound_table(trial_id)
        return [] if table is None else list(table_rows(table))

    def _sound_table(self, trial_id: int) -> MeasurementTable:
        """The measurements of a recorded trial, which must be all there: rows after a gap would hide the damage."""
        record = self.writer.committed_trials().trial(trial_id)
        due = None if self._evaluation_steps is None else [s for s in self._evaluation_steps if s <= record.steps]
        try:
            table = self.writer.read_measurements(trial_id)
            found = str(table.faults[0]) if table.faults else ""
            if not found and due is not None and record.status is Status.COMPLETE and list(table.steps) != due:
                found = f"{len(table.steps)} rows"
        except RecordsError as error:
            found = str(error)
        if found:
            count = "" if due is None else f"{len(due)} "
            raise DamagedStudyError(
                f"{self.writer.folder}: trial {trial_id} can be trained further if all its {count}measurements up "
                f"to step {record.steps} are there. Found {one_line(found, 300).rstrip('.')}. Move its folder out of "
                "the tree and run again."
            )
        return table

    def _journal(self, trial_id: int, waiting: _Waiting) -> None:
        if trial_id not in self._journaled and trial_id in self.writer.committed_trials():
            self._sound_table(trial_id)
            self.writer.reopen(trial_id)
        self.writer.append(trial_id, [Measurement(*row) for row in waiting.rows], sync=False)
        self._journaled.add(trial_id)
        waiting.rows.clear()
