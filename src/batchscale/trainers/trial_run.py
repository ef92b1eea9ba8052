"""One trial and its script: started, read, paused, continued, ended.

Owns the order of what is sent to the script. The engine decides how far a trial trains, and what its end means.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.redaction import HIDDEN, redact_line, secrets_of
from batchscale.spec.trainer import ReportSource, TrainerSpec, render
from batchscale.study.failure import Failure
from batchscale.study.trial import TrialTask
from batchscale.trainers.command import AttemptFiles, fill_values, make_document, make_environment, render_command
from batchscale.trainers.folder import TrialFolder, hash_identity, write_json
from batchscale.trainers.process import LOG_FILE, Launch, ScriptProcess
from batchscale.trainers.readers import Reader, compile_pattern, make_reader
from batchscale.trainers.reports import Mark, ReportFault, ScriptReports, describe_times
from batchscale.trainers.supervisor import MAX_TRIED, Order, tried_file

LOCK_S = 10.0
"""The time that another worker has to release a trial, besides its time to save."""


@dataclass(frozen=True)
class StudyContext:
    """The settings that all trials of a study share.

    ``environment`` is the user's, ``workers`` the number of scripts that run at once on this machine.
    """

    trainer: TrainerSpec
    study: Study
    root: Path
    environment: Mapping[str, str]
    device: str | None = None
    workers: int = 1


class TrialRun:
    """A trial, read from its folder, and its script if one is running."""

    def __init__(self, context: StudyContext, task: TrialTask) -> None:
        self.trial_id = task.trial_id
        self.context = context
        self._folder = TrialFolder(context.root / str(task.trial_id), identity_of(context, task))
        self._process: ScriptProcess | None = None
        self._reader: Reader | None = None
        self._marks: list[Mark] = []
        self._num_save_requests = 0
        self.reports = self._no_reports()
        self.fault: str | None = None
        history = self._folder.history
        if history.folded < history.attempts:  # the reports of an attempt of another process
            self._reader = self._make_reader(self._files(), task)
            self.poll()
            self.fault = None

    # --- results -----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> dict[int, dict[str, float]]:
        """All measurements; those of the newest attempt replace earlier ones from its first step on."""
        first = self.reports.stamps[0].step if self.reports.stamps else None
        earlier = self._folder.history.rows
        if first is not None:
            earlier = {step: row for step, row in earlier.items() if step < first}
        return {**earlier, **self.reports.rows}

    def row(self, step: int) -> dict[str, float] | None:
        """Return the measurement at a step, by the same rule, without merging all of them."""
        if step in self.reports.rows:
            return self.reports.rows[step]
        replaced = bool(self.reports.stamps) and step >= self.reports.stamps[0].step
        return None if replaced else self._folder.history.rows.get(step)

    @property
    def columns(self) -> tuple[str, ...]:
        """The metrics of the first measurement."""
        if self._folder.history.columns:
            return self._folder.history.columns
        rows = self.rows
        return tuple(rows[min(rows)]) if rows else ()

    @property
    def diverged_at(self) -> int | None:
        """The step at which training diverged, if it did; a trunk is behind the branches that were measured."""
        earlier = self._folder.history.diverged_at
        diverged_at = self.reports.diverged_at if earlier is None else earlier
        if diverged_at is None or self.context.study.branches is None:
            return diverged_at
        return max(diverged_at, 1 + max(self.rows, default=0))

    @property
    def running(self) -> bool:
        """True if there is a script, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the script; None if it runs, or none was started here."""
        return None if self._process is None else self._process.poll()

    @property
    def is_released(self) -> bool:
        """True if the script was asked to exit because another worker asked for the trial."""
        return self._process is not None and self._process.released

    @property
    def waits(self) -> bool:
        """True if the script reported that it waits, or is frozen."""
        return self.reports.paused is not None or (self._process is not None and self._process.frozen)

    @property
    def has_state(self) -> bool:
        """True if the script has saved anything."""
        return self._folder.has_state()

    @property
    def unread(self) -> int:
        """The number of reports that could not be parsed."""
        return 0 if self._reader is None else self._reader.unread

    @property
    def tried_lines(self) -> tuple[str, ...]:
        """The first printed lines that the pattern did not match; none if it matched any, or there is no pattern."""
        if self.context.trainer.reports.source is not ReportSource.PATTERN or self.reports.stamps:
            return ()
        with contextlib.suppress(OSError):
            return tuple(tried_file(self._files().printed).read_text(errors="replace").splitlines()[:MAX_TRIED])
        return ()

    def explain(self, reason: str) -> Failure:
        """Return the failure of the script with the end of its output."""
        if self._process is None:
            return Failure(reason)
        trainer = self.context.trainer
        secrets = secrets_of(trainer.command, trainer.env, self.context.environment)
        secrets |= {self.context.environment.get(name) or HIDDEN for name in trainer.pass_env}
        lines = tuple(redact_line(line, secrets) for line in self._process.last_lines())
        return Failure(reason, lines) if lines else Failure(f"{reason} It printed nothing.")

    def times(self) -> dict[str, float]:
        """Return the times of the newest attempt."""
        study = self.context.study
        return describe_times(self.reports.stamps, self._marks, study.batch_size, study.branches) if self._marks else {}

    def memory_bytes(self) -> int:
        """Return the memory of the script."""
        return 0 if self._process is None else self._process.memory_bytes()

    def num_bytes(self) -> int:
        """Return the bytes of the script's saves."""
        return self._folder.num_bytes()

    # --- control of the script ---------------------------------------------------------------------------------

    def poll(self) -> None:
        """Read new reports of the script; a report that breaks a rule sets ``fault``."""
        if self._reader is None or self.fault is not None:
            return
        try:
            self.reports.update(self._reader.poll(), time.monotonic())
        except ReportFault as fault:
            self.fault = str(fault)

    def train(self, task: TrialTask, goal: Goal | None, should_stop: Callable[[], bool]) -> None:
        """Let the script train to the task's step; it is started if it is not running.

        Starting waits for a script of another worker to save and exit, unless ``should_stop`` returns True.
        """
        if self.is_released:
            self.stop(keep=self.context.trainer.resume)
        if not self.running:
            self._start(task, goal, should_stop)
            return
        assert self._process is not None
        self._control(until_step=task.until_step)
        self.reports.paused = None
        if self._process.frozen:
            self._process.send(Order.THAW)
        self._marks.append(Mark(max(self.reports.step, 0), time.monotonic()))

    def freeze(self) -> None:
        """Halt a script that does not wait by itself."""
        if self._process is not None:
            self._process.send(Order.FREEZE)

    def request_save(self) -> None:
        """Request a save from a waiting script."""
        self._num_save_requests += 1
        self._control(until_step=max(self.reports.step, 0), save=self._num_save_requests)

    def request_exit(self, keep: bool) -> None:
        """Request the script to exit, after a save if ``keep``; `stop` and `kill` wait for it."""
        if self.running:
            assert self._process is not None
            self._control(until_step=max(self.reports.step, 0), stop=True, keep=keep)
            self._process.send(Order.TERMINATE)

    def stop(self, keep: bool) -> None:
        """End the script: request it, wait, then kill it."""
        if self.running and (keep or not self._ignores_control):
            self.request_exit(keep)
            assert self._process is not None
            self._process.wait(self.context.trainer.grace_s)
        self.kill()

    def kill(self) -> None:
        """End the script now."""
        if self._process is not None:
            self._process.kill()
            self.poll()

    def fold(self, failed: bool = False) -> None:
        """Add the ended attempt to the history; ``failed`` if it failed before it reported anything new."""
        history = self._folder.history
        history.rows, history.columns, history.diverged_at = self.rows, self.columns, self.diverged_at
        history.folded, history.failures = history.attempts, history.failures + 1 if failed else 0
        self._folder.write()
        self.reports, self._reader, self._marks = self._no_reports(), None, []
        self._process, self.fault = None, None

    def _no_reports(self) -> ScriptReports:
        return ScriptReports(self.context.study.goal, self.context.study.tokens_per_example)

    def remove(self) -> None:
        """Remove the folder; the script must have ended."""
        self._folder.remove()

    @property
    def _ignores_control(self) -> bool:
        """True if the script only prints, and does not read requests."""
        return self.context.trainer.reports.source is not ReportSource.PROTOCOL

    def _start(self, task: TrialTask, goal: Goal | None, should_stop: Callable[[], bool]) -> None:
        lock_handle = self._folder.acquire(self.context.trainer.grace_s + LOCK_S, should_stop)
        if lock_handle is None:
            return
        try:
            self._launch(task, goal, lock_handle)
        finally:
            os.close(lock_handle)  # the supervisor holds the lock now

    def _launch(self, task: TrialTask, goal: Goal | None, lock_handle: int) -> None:
        """Start the next attempt. Only with the lock is it settled what the last one saved and reported."""
        context, trainer = self.context, self.context.trainer
        if self._reader is not None:
            self.poll()
            self.fold()
        files = AttemptFiles(self._folder.open_attempt(), self._folder.state)
        facts = {
            "attempt": self._folder.history.attempts,
            "resume": trainer.resume and self._folder.has_state(),
            "device": context.device,
        }
        document = make_document(context.study, task, goal, files, **facts)
        write_json(files.document, document)
        values = fill_values(document, files.document)
        segments = compile_pattern(trainer.reports.text)[0] if trainer.reports.source is ReportSource.PATTERN else ()
        launch = Launch(
            command=render_command(trainer, values),
            folder=trainer.folder,
            environment=make_environment(trainer, values, context.environment, context.workers),
            log=files.folder / LOG_FILE,
            lock=self._folder.lock,
            lock_handle=lock_handle,
            grace_s=trainer.grace_s,
            printed=files.printed,
            segments=segments,
        )
        self._reader = self._make_reader(files, task, is_new=True)
        self._marks = [Mark(0, time.monotonic())]
        self._process = ScriptProcess(launch)

    def _files(self) -> AttemptFiles:
        return AttemptFiles(self._folder.attempt, self._folder.state)

    def _make_reader(self, files: AttemptFiles, task: TrialTask, is_new: bool = False) -> Reader:
        """Return the reader of an attempt; for a new one, a table of an earlier attempt is removed."""
        reports = self.context.trainer.reports
        path = files.printed if reports.source is ReportSource.PATTERN else files.reports
        if reports.source in (ReportSource.CSV, ReportSource.JSON_LINES):
            document = make_document(self.context.study, task, None, files, device=self.context.device)
            text = render(reports.text, fill_values(document, files.document), "trainer.reports")
            path = self.context.trainer.folder / text
            if is_new:
                path.unlink(missing_ok=True)
        return make_reader(reports, path, self.context.study.goal)

    def _control(self, until_step: int, stop: bool = False, keep: bool = True, save: int = 0) -> None:
        save = max(save, self._num_save_requests)
        with contextlib.suppress(FileNotFoundError):  # the trial was removed, which ends the script too
            write_json(self._files().control, {"until_step": until_step, "stop": stop, "keep": keep, "save": save})


def identity_of(context: StudyContext, task: TrialTask) -> str:
    """Return a text that is different for every different trial; a hash, because it is stored and may hold secrets."""
    values = ",".join(f"{name}={value!r}" for name, value in sorted(task.parameters.items()))
    command = "\x1f".join((*context.trainer.command, *(f"{n}={v}" for n, v in sorted(context.trainer.env.items()))))
    return hash_identity(f"{context.study.workload}|{context.study.batch_size}|{task.seed}|{values}|{command}")
