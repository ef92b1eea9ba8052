"""Mirror the trials of a run to other tools while it runs, without any influence on it.

Each tracker has a thread and a queue of limited length. Rows that find the queue full are left out for now: when a
trial has ended, the thread reads its record and sends whatever is missing. A journal beside the records keeps the step
to which each trial was sent, written before sending, so that a run that is continued sends nothing twice.
"""

import contextlib
import logging
import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.records.durable import REAL, make_folders
from batchscale.records.model import parse_trial
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.layout import (
    MAX_CSV_BYTES,
    MEASUREMENTS_FILE,
    TRIAL_FILE,
    RunPaths,
    StudyPaths,
    folder_number,
)
from batchscale.records.tree.measurements import parse_measurements
from batchscale.run.trackers.tracker import TrackedTrial, Tracker, TrackerName
from batchscale.spec.plan import Plan, Study
from batchscale.study.trial import Row, TrialProgress, TrialTask

MAX_EVENTS = 10_000
MAX_FAILURES = 3
"""Failures in a row after which a tracker is left alone for the rest of the run."""
CLOSE_S = 60.0
"""The longest that a finished run waits for its trackers: MLflow takes long to make a new database."""
STOP_S = 1.0
"""The same of a run that was stopped: the next command sends the rest."""
RETRY_S = 1.0


@dataclass(frozen=True)
class _Measured:
    """All rows of a trial behind ``from_step``, up to ``until_step``."""

    trial: TrackedTrial
    rows: Sequence[Row]
    from_step: int
    until_step: int


@dataclass(frozen=True)
class _Ended:
    study: Study
    trial_id: int


class Tracking:
    """The trackers of one run. No call of it raises or waits, except ``close``, which waits for a limited time."""

    def __init__(self, plan: Plan, root: Path, names: Sequence[TrackerName]) -> None:
        self._plan, self._root = plan, root
        self._run = root.absolute().name
        self.threads = [_TrackerThread(self, name, plan, root) for name in names]
        self._studies = {study.batch_size: study for study in plan.studies}

    @property
    def notices(self) -> list[str]:
        """A sentence for each tracker that has failed."""
        return [thread.notice for thread in self.threads if thread.notice]

    def on_progress(self, batch_size: int, task: TrialTask, progress: TrialProgress) -> None:
        """Send new measurements of a running trial."""
        if not self.threads:
            return
        trial = self.describe(self._studies[batch_size], task.trial_id, task.parameters, task.seed)
        for thread in self.threads:
            thread.put(_Measured(trial, tuple(progress.rows), task.from_step, progress.step))

    def on_recorded(self, batch_size: int, trial_ids: Sequence[int]) -> None:
        """Send the end of trials that are in the tree now."""
        for thread in self.threads:
            for trial_id in trial_ids:
                thread.put(_Ended(self._studies[batch_size], trial_id))

    def close(self, wait_s: float) -> None:
        """Send the rest, as long as there is time."""
        deadline = time.monotonic() + wait_s
        for thread in self.threads:
            thread.close(deadline)

    def describe(self, study: Study, trial_id: int, parameters: Mapping[str, float], seed: int | None) -> TrackedTrial:
        """Return a trial as trackers get it."""
        workload, goal = str(study.workload), str(study.goal)
        return TrackedTrial(self._run, workload, study.batch_size, trial_id, dict(parameters), seed, goal)


@contextlib.contextmanager
def open_tracking(
    plan: Plan, root: Path, names: Sequence[TrackerName], stopped: Callable[[], bool]
) -> Iterator[Tracking]:
    """Start the trackers, and close them at the end, at once if the run was ``stopped``."""
    tracking = Tracking(plan, root, names)
    for thread in tracking.threads:
        thread.start()
    try:
        yield tracking
    finally:
        tracking.close(STOP_S if stopped() else CLOSE_S)


class _SentJournal:
    """The step to which each trial was sent, and the steps of ended ones: lines of ``BATCH_SIZE/TRIAL STEP s|e``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sent: dict[tuple[int, int], int] = {}
        self.ended: dict[tuple[int, int], int] = {}
        make_folders(REAL, path.parent)
        text = path.read_text(errors="replace") if path.exists() else ""
        for match in re.finditer(r"^(\d+)/(\d+) (-?\d+) ([se])$", text, re.MULTILINE):
            key, step = (int(match[1]), int(match[2])), int(match[3])
            (self.ended if match[4] == "e" else self.sent)[key] = step

    def mark(self, key: tuple[int, int], step: int, *, end: bool = False) -> None:
        """Store that a trial was sent up to a step, or to its end; -1 and below: nothing."""
        (self.ended if end else self.sent)[key] = step
        with self._path.open("a") as file:
            file.write(f"{key[0]}/{key[1]} {step} {'e' if end else 's'}\n")


class _TrackerThread:
    def __init__(self, tracking: Tracking, name: TrackerName, plan: Plan, root: Path) -> None:
        self.notice: str | None = None
        self._tracking, self._name, self._plan, self._root = tracking, name, plan, root
        self._events: queue.Queue[_Measured | _Ended] = queue.Queue(MAX_EVENTS)
        self._closing = threading.Event()
        self._deadline = math.inf
        self._given_up = False
        self._failures = 0
        self._covered: dict[tuple[int, int], int] = {}
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, event: _Measured | _Ended) -> None:
        """Add an event; one that finds no room is recovered from the records later."""
        if not self._given_up:
            with contextlib.suppress(queue.Full):
                self._events.put_nowait(event)

    def close(self, deadline: float) -> None:
        """Wait for the thread until the deadline."""
        self._deadline = deadline
        self._closing.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._given_up = True
            self.notice = (
                f"The tracker {self._name.name} has not taken everything in time. The records are "
                "complete; run the same command again to send the rest."
            )

    # --- the thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        logging.getLogger(self._name.name).setLevel(logging.ERROR)
        try:
            tracker = self._name.make()
            journal = _SentJournal(self._journal_path())
        except Exception as error:  # noqa: BLE001  (code of others may raise anything)
            self._given_up = True
            advice = f" Install it with 'pip install {self._name.name}'." if isinstance(error, ImportError) else ""
            self._set_notice(error, f"The run continues without it.{advice}")
            return
        self._sweep(tracker, journal)
        while not self._given_up:
            try:
                event = self._events.get(timeout=0.1)
            except queue.Empty:
                if self._closing.is_set():
                    break
                continue
            self._handle(tracker, journal, event)
        if not self._given_up:
            self._sweep(tracker, journal)
            with contextlib.suppress(Exception):
                tracker.close()

    def _journal_path(self) -> Path:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", self._name.text)[:80]
        return RunPaths(self._root).tracking / f"{name}.sent"

    def _handle(self, tracker: Tracker, journal: _SentJournal, event: _Measured | _Ended) -> None:
        try:
            if isinstance(event, _Measured):
                self._send_progress(tracker, journal, event)
            else:
                self._send_end(tracker, journal, event.study, event.trial_id)
            self._failures = 0
        except Exception as error:  # noqa: BLE001
            self._failures += 1
            self._given_up = self._failures >= MAX_FAILURES
            rest = "It is left alone now" if self._given_up else "It is tried again"
            self._set_notice(
                error, f"{rest}; the run is not affected. Run the same command again to send what is missing."
            )
            self._closing.wait(RETRY_S)

    def _set_notice(self, error: Exception, advice: str) -> None:
        text = one_line(error, 200).rstrip(".")
        self.notice = f"The tracker {self._name.name} failed ({type(error).__name__}: {text}). {advice}"

    def _send_progress(self, tracker: Tracker, journal: _SentJournal, event: _Measured) -> None:
        """Send rows that follow those before; behind a gap they wait for the end of the trial, when all are sent."""
        key = (event.trial.batch_size, event.trial.trial_id)
        if event.from_step <= max(0, self._covered.get(key, journal.sent.get(key, 0))):
            self._send_rows(tracker, journal, event.trial, event.rows)
            self._covered[key] = max(event.until_step, self._covered.get(key, 0))

    def _send_rows(self, tracker: Tracker, journal: _SentJournal, trial: TrackedTrial, rows: Sequence[Row]) -> None:
        """Send the rows behind those that were sent; a row that is refused does not count as sent."""
        key = (trial.batch_size, trial.trial_id)
        before = journal.sent.get(key, -1)
        new = [row for row in rows if row[0] > before]
        if not new:
            return
        journal.mark(key, new[-1][0])
        for step, values in new:
            try:
                tracker.on_measurement(trial, step, values)
            except Exception:
                journal.mark(key, before)
                raise
            before = step

    def _send_end(self, tracker: Tracker, journal: _SentJournal, study: Study, trial_id: int) -> None:
        key = (study.batch_size, trial_id)
        folder = StudyPaths.of(self._root, study.workload, study.batch_size).trial(trial_id)
        if not (folder / TRIAL_FILE).exists():
            return  # dropped before it was recorded
        record = parse_trial(read_file(folder / TRIAL_FILE), str(folder))
        if journal.ended.get(key) == record.steps:
            return
        table = parse_measurements(read_file(folder / MEASUREMENTS_FILE, MAX_CSV_BYTES))
        columns = [[math.nan if cell is None else cell for cell in column] for column in table.columns]
        rows = [
            (step, {name: column[i] for name, column in zip(table.metrics, columns, strict=True)})
            for i, step in enumerate(table.steps)
        ]
        seed = None if record.metadata is None else record.metadata.seed
        trial = self._tracking.describe(study, trial_id, {**study.fixed, **record.parameters}, seed)
        self._send_rows(tracker, journal, trial, rows)
        before = journal.ended.get(key, -1)
        journal.mark(key, record.steps, end=True)
        try:
            tracker.on_trial_end(trial, record.status.value, record.steps)
            self._covered[key] = record.steps
        except Exception:
            journal.mark(key, before, end=True)
            raise

    def _sweep(self, tracker: Tracker, journal: _SentJournal) -> None:
        """Send recorded trials whose end was not sent: of an earlier command, or that found the queue full."""
        for study in self._plan.studies:
            folder = StudyPaths.of(self._root, study.workload, study.batch_size).folder
            names = [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
            for trial_id in sorted(number for name in names if (number := folder_number(name)) is not None):
                if self._given_up or time.monotonic() > self._deadline:
                    return
                if journal.ended.get((study.batch_size, trial_id), -1) < 0:
                    with contextlib.suppress(RecordsError):  # the run reports damaged records
                        self._handle(tracker, journal, _Ended(study, trial_id))
