"""The recorder of a study: it alone writes the study's records, and reads them again.

Measurements of running trials wait in memory, then in journals, until their trial is committed. A trial that is over
before its measurements were worth a journal is committed straight from memory: a journal costs two synced writes, which
is much for a trial of a tenth of a second. A full disk may refuse any call: then nothing is lost, and the same call is
made again later.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from batchscale.errors import RecordsError, one_line
from batchscale.records.metadata.trial import Hardware, Timing, TrialMetadata
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.committed import CommittedTrials
from batchscale.records.tree.measurements import Measurement, MeasurementTable
from batchscale.records.tree.writer import StudyWriter
from batchscale.spec.goal import Goal
from batchscale.spec.horizon_free import HALF_LIFE, half_life_of
from batchscale.study.failure import Failure
from batchscale.study.identity import DamagedStudyError
from batchscale.study.next_search import TrialResult
from batchscale.study.trial import Row, TrialOutcome, TrialProgress, TrialSummary

JOURNAL_AFTER_S = 2.0
"""A study's measurements wait in memory until they took so much training time."""


@dataclass(frozen=True)
class EndedTrial:
    """A trial that is to become a record.

    ``failed`` is set if it could not be trained, ``confirms`` if it trains another trial again with a new seed.
    """

    trial_id: int
    outcome: TrialOutcome
    parameters: Mapping[str, float]
    seed: int
    search: int
    point: int
    failed: Failure | None = None
    confirms: int | None = None


@dataclass
class _Pending:
    """The measurements of a trial that are not in a journal yet, and the cost of the trial in this run."""

    rows: list[Row] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)
    hardware: Hardware | None = None
    seconds: float = 0.0


class Recorder:
    """Journals, commits and ``study.json`` of one study."""

    def __init__(
        self,
        writer: StudyWriter,
        goal: Goal,
        evaluation_steps: Sequence[int] | None,
        half_lives: Sequence[float] = (),
    ) -> None:
        """Take an opened study; recorded trials that train longer must have all ``evaluation_steps``.

        ``half_lives`` are those of the averages that its measurements show.
        """
        self._writer = writer
        self._half_lives = half_lives
        self._goal = goal
        self._evaluation_steps = evaluation_steps
        self._pending: dict[int, _Pending] = {}
        self._pending_s = 0.0
        self._journaled = set(writer.running_trials())
        self._refused: StudyRecord | None = None

    @property
    def records(self) -> CommittedTrials:
        """The recorded trials by id."""
        return self._writer.committed_trials()

    @property
    def journaled(self) -> list[int]:
        """The trials that have a journal."""
        return sorted(self._journaled)

    # --- reading ---------------------------------------------------------------------------------------------

    def read_summaries(self, retry: bool = False) -> dict[int, TrialSummary]:
        """Return the summary of every trial with a record or a journal; with ``retry`` INCOMPLETE ones may continue.

        Raises:
            DamagedStudyError: a record or a journal cannot be read.
        """
        for trial_id, reason in self._writer.damaged_trials.items():
            raise DamagedStudyError(
                f"{self._writer.folder}: trial {trial_id} is not as it was recorded: {reason} Then run again."
            )
        return {trial_id: self.read_summary(trial_id, retry) for trial_id in (*self.records, *self.journaled)}

    def read_summary(self, trial_id: int, retry: bool = False) -> TrialSummary:
        """Return the summary of one trial that has a record or a journal."""
        summary = TrialSummary()
        if trial_id in self.records and not (retry and self.records.trial(trial_id).status is Status.INCOMPLETE):
            summary = self._from_record(trial_id)
        if trial_id in self._journaled or summary.recorded is None:
            summary.update(self.rows(trial_id), None, self._goal)
        return summary

    def _from_record(self, trial_id: int) -> TrialSummary:
        trial = self.records.trial(trial_id)
        summary = TrialSummary(
            step=trial.steps,
            reached_at=trial.reached_at,
            best=math.inf if trial.best is None else trial.best,
            recorded=trial.steps,
        )
        if trial.status is Status.INFEASIBLE:
            summary.diverged_at = trial.steps
        elif trial.status is Status.INCOMPLETE:
            metadata = self.records[trial_id].metadata
            summary.failed = Failure((metadata.failure if metadata is not None else None) or "incomplete")
            summary.recorded_failed = True
        return summary

    def results(self) -> list[TrialResult]:
        """Return the recorded trials that did not fail, by id, for `plan_next_search`."""
        results = []
        for trial in self.records.trials():
            if trial.status is not Status.INCOMPLETE:
                diverged = trial.status is Status.INFEASIBLE
                reached_at = None if diverged else trial.reached_at
                best = math.inf if trial.best is None else trial.best
                results.append(TrialResult(trial.trial_id, trial.parameters, reached_at, best, diverged))
        return results

    def rows(self, trial_id: int) -> list[Row]:
        """Return all measurements of a trial that is not over, or of a recorded one that trained longer."""
        table = None
        if trial_id in self._journaled:
            table = self._writer.journal(trial_id)
        elif trial_id in self.records:
            table = self._read_complete(trial_id)
        pending = self._pending[trial_id].rows if trial_id in self._pending else []
        return [*(() if table is None else _table_rows(table)), *pending]

    def _read_complete(self, trial_id: int) -> MeasurementTable:
        """Return the measurements of a recorded trial, which must be complete: rows after a gap would hide damage."""
        record = self.records.trial(trial_id)
        due = None if self._evaluation_steps is None else [s for s in self._evaluation_steps if s <= record.steps]
        try:
            table = self._writer.read_measurements(trial_id)
            fault = str(table.faults[0]) if table.faults else ""
            if not fault and due is not None and record.status is Status.COMPLETE and list(table.steps) != due:
                fault = f"{len(table.steps)} rows"
        except RecordsError as error:
            fault = str(error)
        if fault:
            count = "" if due is None else f"{len(due)} "
            raise DamagedStudyError(
                f"{self._writer.folder}: trial {trial_id} can be trained further if all its {count}measurements up "
                f"to step {record.steps} exist. Found {one_line(fault, 300).rstrip('.')}. Move its folder out of "
                "the tree and run again."
            )
        return table

    # --- trials ----------------------------------------------------------------------------------------------

    def add(self, progress: TrialProgress, rows: Sequence[Row], seconds: float, hardware: Hardware | None) -> None:
        """Keep new measurements of a trial, growing steps, and its cost in memory until they are worth a journal."""
        pending = self._pending.setdefault(progress.trial_id, _Pending())
        pending.rows += rows
        pending.timing, pending.hardware = Timing.of(progress.timing), progress.hardware or hardware
        pending.seconds += seconds
        self._pending_s += seconds

    @property
    def journal_due(self) -> bool:
        """True if enough training waits in memory."""
        return self._pending_s > JOURNAL_AFTER_S

    def write_journals(self, until: float = float("inf")) -> None:
        """Append pending measurements to journals, as long as the monotonic clock is before ``until``.

        From then on they survive this process.
        """
        for trial_id, pending in self._pending.items():
            if pending.rows:
                self._write_journal(trial_id, pending)
                if time.monotonic() >= until:
                    return
        self._pending_s = 0.0

    def _write_journal(self, trial_id: int, pending: _Pending) -> None:
        if trial_id not in self._journaled and trial_id in self.records:
            self._read_complete(trial_id)
            self._writer.reopen(trial_id)
        self._writer.append(trial_id, [Measurement(*row) for row in pending.rows], sync=False)
        self._journaled.add(trial_id)
        pending.rows.clear()

    def commit(self, trial: EndedTrial) -> TrialSummary:
        """Make a trial a record, and return the summary of its rows up to its end."""
        outcome = trial.outcome
        # rows beyond the end were computed for nothing and leave no trace
        rows = [row for row in self.rows(trial.trial_id) if row[0] <= outcome.step]
        summary = TrialSummary(failed=trial.failed)
        summary.update(rows, None, self._goal)
        failure, log_lines = (None, ()) if trial.failed is None else trial.failed.record
        timing, hardware = self._cost(trial.trial_id)
        metadata = TrialMetadata(
            seed=trial.seed,
            search=trial.search,
            point=trial.point,
            confirms=trial.confirms,
            stop_reason=outcome.reason,
            reached_at=summary.reached_at,
            diverged_at=outcome.step if outcome.status is Status.INFEASIBLE else None,
            best=summary.best if math.isfinite(summary.best) else None,
            failure=failure or None,
            log_lines=log_lines,
            timing=timing,
            hardware=hardware,
        )
        parameters = {**self._half_life(rows, summary), **trial.parameters}
        record = TrialRecord(trial.trial_id, outcome.status, outcome.step, parameters, metadata)
        self._writer.commit(record, [Measurement(*row) for row in rows])
        self._remove(trial.trial_id)
        return summary

    def _half_life(self, rows: Sequence[Row], summary: TrialSummary) -> dict[str, float]:
        """Return the half-life of the average that reached the goal first, or else had the best value."""
        metric, sign = self._goal.metric, -1 if self._goal.maximize else 1
        if not self._half_lives or not rows or not math.isfinite(summary.best):
            return {}
        if summary.reached_at is None:
            shown = next(row for _, row in rows if sign * row.get(metric, math.nan) == summary.best)
        else:
            shown = next(row for step, row in rows if step == summary.reached_at)
        half_life = half_life_of(shown, metric, self._half_lives)
        return {} if half_life is None else {HALF_LIFE: half_life}

    def _cost(self, trial_id: int) -> tuple[Timing, Hardware | None]:
        """Return the timing of a trial's last job with the seconds of all its jobs, and the hardware."""
        pending = self._pending.get(trial_id, _Pending())
        before = self.records.get(trial_id)
        timing = None if before is None or before.metadata is None else before.metadata.timing
        recorded_s = (None if timing is None else timing.total_s) or 0.0
        return replace(pending.timing, total_s=round(pending.seconds + recorded_s, 6)), pending.hardware

    def discard(self, trial_id: int) -> None:
        """Delete the journal of a trial that is not needed."""
        self._writer.discard(trial_id)
        self._remove(trial_id)

    def _remove(self, trial_id: int) -> None:
        self._journaled.discard(trial_id)
        self._pending.pop(trial_id, None)

    # --- the study -------------------------------------------------------------------------------------------

    def write_study(self, record: StudyRecord) -> None:
        """Update ``study.json``."""
        self._refused = record
        self._writer.update(record)
        self._refused = None

    @property
    def refused(self) -> bool:
        """True if the disk refused a ``study.json``."""
        return self._refused is not None

    def repeat_refused(self) -> None:
        """Write the ``study.json`` that the disk refused: before anything else is trained or recorded."""
        if self._refused is not None:
            self.write_study(self._refused)

    def close(self) -> None:
        """Release the study's lock."""
        self._writer.close()


def _table_rows(table: MeasurementTable) -> list[Row]:
    """Return the rows of a table; a missing value is NaN."""
    columns = zip(*table.columns, strict=True) if table.columns else ([] for _ in table.steps)
    return [
        (step, {name: math.nan if v is None else v for name, v in zip(table.metrics, values, strict=True)})
        for step, values in zip(table.steps, columns, strict=True)
    ]
