"""One trial in the hands of its script: started, heard, paused, let go on, asked to leave.

Owns the order of what is said to the script. How far a trial should train, and what its end means, is the engine's.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.trainer import ReportSource, TrainerSpec, render
from batchscale.study.failure import Failure
from batchscale.study.trial import TrialTask
from batchscale.trainers.command import AttemptFiles, fill_values, make_document, make_environment, render_command
from batchscale.trainers.folder import TrialFolder, write_json
from batchscale.trainers.process import LOCK_FILE, LOG_FILE, Launch, ScriptProcess
from batchscale.trainers.readers import Reader, compile_pattern, make_reader
from batchscale.trainers.reports import Heard, ReportFault
from batchscale.trainers.supervisor import Order
from batchscale.trainers.timing import Mark, describe_times

LOCK_S = 10.0
"""How much longer than its time to save another worker may take to hand over a trial."""


@dataclass(frozen=True)
class Surroundings:
    """What all trials of a study share.

    ``environment`` is the user's, ``workers`` how many scripts run at once on this machine.
    """

    trainer: TrainerSpec
    study: Study
    root: Path
    environment: Mapping[str, str]
    device: str | None = None
    workers: int = 1


class TrialRun:
    """A trial, known from its folder, and its script if one is running."""

    def __init__(self, around: Surroundings, task: TrialTask) -> None:
        self.trial_id = task.trial_id
        self.around = around
        self._folder = TrialFolder(around.root / str(task.trial_id), identity_of(around, task))
        self._process: ScriptProcess | None = None
        self._reader: Reader | None = None
        self._marks: list[Mark] = []
        self._saves_asked = 0
        self.heard = Heard(around.study.goal)
        self.fault: str | None = None
        if (
            self._folder.known.folded < self._folder.known.attempts
        ):  # what an attempt said that this process did not see
            self._reader = self._make_reader(self._files(), task)
            self.poll()
            self.fault = None

    # --- what is known ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> dict[int, dict[str, float]]:
        """All measurements; what the newest attempt says of a step, and of those behind it, replaces what was known."""
        first = self.heard.stamps[0].step if self.heard.stamps else None
        known = self._folder.known.rows
        kept = known if first is None else {step: row for step, row in known.items() if step < first}
        return {**kept, **self.heard.rows}

    def row(self, step: int) -> dict[str, float] | None:
        """The measurement at a step, by the same rule, without putting all of them together."""
        if step in self.heard.rows:
            return self.heard.rows[step]
        replaced = bool(self.heard.stamps) and step >= self.heard.stamps[0].step
        return None if replaced else self._folder.known.rows.get(step)

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics of the first measurement."""
        if self._folder.known.columns:
            return self._folder.known.columns
        rows = self.rows
        return tuple(rows[min(rows)]) if rows else ()

    @property
    def diverged_at(self) -> int | None:
        """Where training diverged."""
        known = self._folder.known.diverged_at
        return self.heard.diverged_at if known is None else known

    @property
    def running(self) -> bool:
        """Whether the script is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the script ended; None if it runs, or none was started here."""
        return None if self._process is None else self._process.poll()

    @property
    def waits(self) -> bool:
        """Whether the script said that it waits, or is frozen."""
        return self.heard.paused is not None or (self._process is not None and self._process.frozen)

    @property
    def has_state(self) -> bool:
        """Whether the script has saved anything to go on from."""
        return self._folder.has_state()

    def explain(self, reason: str) -> Failure:
        """Why the script failed, with the end of its output."""
        if self._process is None:
            return Failure(reason)
        lines = self._process.last_lines()
        return Failure(reason, lines) if lines else Failure(f"{reason} It printed nothing.")

    @property
    def unread(self) -> int:
        """How many reports could not be understood."""
        return 0 if self._reader is None else self._reader.unread

    def times(self) -> dict[str, float]:
        """The times of the newest attempt."""
        return describe_times(self.heard.stamps, self._marks, self.around.study.batch_size) if self._marks else {}

    def memory_bytes(self) -> int:
        """The memory that the script holds."""
        return 0 if self._process is None else self._process.memory_bytes()

    def num_bytes(self) -> int:
        """What the script's saves take."""
        return self._folder.num_bytes()

    # --- the conversation ------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Hear what the script has said; a report that breaks a rule is kept as ``fault``."""
        if self._reader is None or self.fault is not None:
            return
        try:
            self.heard.take(self._reader.poll(), time.monotonic())
        except ReportFault as fault:
            self.fault = str(fault)

    def go_on(self, task: TrialTask, goal: Goal | None) -> None:
        """Let the script train to the task's step; it is started if it is not there."""
        if not self.running:
            self._start(task, goal)
            return
        assert self._process is not None
        self._control(until_step=task.until_step)
        self.heard.paused = None
        if self._process.frozen:
            self._process.send(Order.THAW)
        self._marks.append(Mark(max(self.heard.step, 0), time.monotonic()))

    def freeze(self) -> None:
        """Halt a script that does not wait by itself."""
        if self._process is not None:
            self._process.send(Order.FREEZE)

    def ask_to_save(self) -> None:
        """Ask a waiting script to save."""
        self._saves_asked += 1
        self._control(until_step=max(self.heard.step, 0), save=self._saves_asked)

    def ask_to_leave(self, keep: bool) -> None:
        """Ask the script to end, after a save if ``keep``; `leave` and `kill` wait for it."""
        if self.running:
            assert self._process is not None
            self._control(until_step=max(self.heard.step, 0), stop=True, keep=keep)
            self._process.send(Order.TERMINATE)

    def leave(self, keep: bool) -> None:
        """End the script: asked, given its time, then killed."""
        if self.running and (keep or not self._is_deaf):
            self.ask_to_leave(keep)
            assert self._process is not None
            self._process.wait(self.around.trainer.grace_s)
        self.kill()

    def kill(self) -> None:
        """End the script now."""
        if self._process is not None:
            self._process.kill()
            self.poll()

    def fold(self, failed: bool = False) -> None:
        """Take the ended attempt into what is known; ``failed`` if it went wrong before it reported anything new."""
        known = self._folder.known
        known.rows, known.columns, known.diverged_at = self.rows, self.columns, self.diverged_at
        known.folded, known.failures = known.attempts, known.failures + 1 if failed else 0
        self._folder.write()
        self.heard, self._reader, self._marks = Heard(self.around.study.goal), None, []
        self._process, self.fault = None, None

    def remove(self) -> None:
        """Take the folder away; the script must have ended."""
        self._folder.remove()

    @property
    def _is_deaf(self) -> bool:
        """Whether the script is one that only prints, and would not notice if it were asked."""
        return self.around.trainer.reports.source is not ReportSource.PROTOCOL

    def _start(self, task: TrialTask, goal: Goal | None) -> None:
        around, trainer = self.around, self.around.trainer
        if self._reader is not None:
            self.poll()
            self.fold()
        files = AttemptFiles(self._folder.open_attempt(), self._folder.state)
        facts = {
            "attempt": self._folder.known.attempts,
            "resume": trainer.resume and self._folder.has_state(),
            "device": around.device,
        }
        document = make_document(around.study, task, goal, files, **facts)
        write_json(files.document, document)
        values = fill_values(document, files.document)
        pattern = compile_pattern(trainer.reports.text)[0] if trainer.reports.source is ReportSource.PATTERN else None
        launch = Launch(
            command=render_command(trainer, values),
            folder=trainer.folder,
            environment=make_environment(trainer, values, around.environment, around.workers),
            log=files.folder / LOG_FILE,
            lock=self._folder.path / LOCK_FILE,
            lock_s=trainer.grace_s + LOCK_S,
            grace_s=trainer.grace_s,
            printed=files.printed,
            pattern=pattern,
        )
        self._reader = self._make_reader(files, task, anew=True)
        self._marks = [Mark(0, time.monotonic())]
        self._process = ScriptProcess(launch)

    def _files(self) -> AttemptFiles:
        return AttemptFiles(self._folder.attempt, self._folder.state)

    def _make_reader(self, files: AttemptFiles, task: TrialTask, anew: bool = False) -> Reader:
        """The reader of an attempt; ``anew`` takes away a table that an earlier attempt left at the same place."""
        reports = self.around.trainer.reports
        path = files.printed if reports.source is ReportSource.PATTERN else files.reports
        if reports.source in (ReportSource.CSV, ReportSource.JSON_LINES):
            document = make_document(self.around.study, task, None, files, device=self.around.device)
            text = render(reports.text, fill_values(document, files.document), "trainer.reports")
            path = self.around.trainer.folder / text
            if anew:
                path.unlink(missing_ok=True)
        return make_reader(reports, path, self.around.study.goal)

    def _control(self, until_step: int, stop: bool = False, keep: bool = True, save: int = 0) -> None:
        words = {"until_step": until_step, "stop": stop, "keep": keep, "save": max(save, self._saves_asked)}
        with contextlib.suppress(FileNotFoundError):  # the trial was forgotten, which says the same
            write_json(self._files().control, words)


def identity_of(around: Surroundings, task: TrialTask) -> str:
    """A text that differs wherever the trial would be another one."""
    values = ",".join(f"{name}={value!r}" for name, value in sorted(task.parameters.items()))
    command = "\x1f".join((*around.trainer.command, *(f"{n}={v}" for n, v in sorted(around.trainer.env.items()))))
    return f"{around.study.workload}|{around.study.batch_size}|{task.seed}|{values}|{command}"
