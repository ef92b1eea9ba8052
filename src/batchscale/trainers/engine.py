"""The engine of a study whose trials are trained by the user's own script: the same interface as our own engine.

Owns the order of events: a script is started, its reports are read until the task is complete, and it is left waiting.
Does not decide which trials run, or for how long.
"""

import math
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from batchscale.errors import TrialFailedError, TrialSilentError
from batchscale.machine import count_oom_kills
from batchscale.records.metadata.trial import Hardware
from batchscale.spec.goal import Goal
from batchscale.study.trial import Activity, Row, TrialProgress, TrialTask
from batchscale.trainers.failures import (
    SILENT,
    advise,
    describe_early_end,
    describe_fault,
    describe_gap,
    describe_silence,
    describe_tried,
    ran_out_of_memory,
)
from batchscale.trainers.pool import ScriptPool
from batchscale.trainers.trial_run import StudyContext, TrialRun

POLL_EVERY_S = (0.005, 0.02, 0.05)
"""The time between two readings of a script's reports: at first, after a second, after ten."""

SETTLE_S = 1.0
"""The time that a script has after its last measurement to report that it waits, or to exit; then it is frozen."""

TRAINED_PER_START = 10
"""A checkpoint that costs a new start is made after so many times the time of a start."""


class TrainerEngine:
    """Trains the trials of one study by a script, one at a time; paused scripts wait in the pool."""

    population_size = 1

    def __init__(self, context: StudyContext, pool: ScriptPool, max_finished_bytes: int = 0) -> None:
        self._context = context
        self._pool = pool
        self._max_finished_bytes = max_finished_bytes
        self._steps = context.study.evaluation_steps
        self._trials: dict[int, TrialRun] = {}
        self._finished_bytes: dict[int, int] = {}  # the saves of ended trials, by trial id
        self._on_activity: Callable[[Activity, int], None] = lambda _activity, _step: None

    def advance(
        self, tasks: Sequence[TrialTask], should_stop: Callable[[], bool], goal: Goal | None
    ) -> list[TrialProgress]:
        """Train every task to its ``until_step``, to its divergence, or to its first measurement of the goal.

        Raises:
            TrialFailedError: a script broke a rule, with the reason and its last lines.
            MemoryError: a script ran out of memory.
        """
        return [self._advance(task, should_stop, goal) for task in tasks]

    def listen(self, listener: Callable[[Activity, int], None]) -> None:
        """Call ``listener`` from now on with the activity, loading or training, and the step of the script."""
        self._on_activity = listener

    def save(self, trial_id: int, ending: bool = False) -> None:
        """Save the state of a waiting script that can resume, on request.

        A script that saves only as it exits has to start again: it exits if this process is ``ending``, or after it
        has trained `TRAINED_PER_START` times as long as it took to start.
        """
        trial = self._trials.get(trial_id)
        if trial is None or not trial.running or not self._context.trainer.resume:
            return
        if not trial.reports.can_save:
            times = trial.times()
            if ending or times.get("train_s", 0.0) > TRAINED_PER_START * times.get("warm_up_s", math.inf):
                self._pool.take(trial)
                trial.stop(keep=True)
            return
        saves, until = trial.reports.saves, time.monotonic() + self._context.trainer.grace_s
        trial.request_save()
        while trial.reports.saves == saves and trial.running and time.monotonic() < until:
            time.sleep(POLL_EVERY_S[0])
            trial.poll()

    def finish(self, trial_id: int, step: int) -> None:  # noqa: ARG002 - the interface has it
        """Let the script of an ended trial exit; its saves stay on disk while there is room."""
        trial = self._trials.pop(trial_id, None)
        if trial is None:
            return
        keep = self._context.trainer.resume and sum(self._finished_bytes.values()) < self._max_finished_bytes
        if keep:
            self._finished_bytes[trial_id] = trial.num_bytes()
        self._pool.release(trial, keep=keep, remove=not keep, grace_s=self._context.trainer.grace_s)

    def discard(self, trial_id: int) -> None:
        """Remove a trial with all its files."""
        trial = self._trials.pop(trial_id, None)
        self._finished_bytes.pop(trial_id, None)
        if trial is not None:
            self._pool.release(trial, keep=False, remove=True, grace_s=self._context.trainer.grace_s)
        else:  # another worker may have created it
            shutil.rmtree(self._context.root / str(trial_id), ignore_errors=True)

    def find(self, trial_id: int) -> TrialRun | None:
        """Return a trial of this engine, if it has begun."""
        return self._trials.get(trial_id)

    def trial(self, trial_id: int) -> TrialRun:
        """Return a trial of this engine."""
        return self._trials[trial_id]

    def close(self) -> None:
        """End the scripts of this study."""
        for trial in self._trials.values():
            self._pool.take(trial)
            trial.stop(keep=self._context.trainer.resume)
        self._trials.clear()
        self._pool.finish(self._context)

    # --- one task --------------------------------------------------------------------------------------------

    def _advance(self, task: TrialTask, should_stop: Callable[[], bool], goal: Goal | None) -> TrialProgress:
        trial = self._find(task)
        self._pool.take(trial)
        trial.poll()
        if not self._is_complete(trial, task, goal) and not should_stop():
            kills = count_oom_kills()
            trial.train(task, goal, should_stop)
            failure = self._follow(trial, task, should_stop, goal)
            if failure is not None:
                return self._fail(trial, task, goal, failure, count_oom_kills() - kills)
        self._settle(trial, task)
        return self._progress(trial, task, goal)

    def _find(self, task: TrialTask) -> TrialRun:
        """Return the trial; without a script here, another worker may have trained it since."""
        trial = self._trials.get(task.trial_id)
        if trial is None or not trial.running:
            trial = self._trials[task.trial_id] = TrialRun(self._context, task)
        return trial

    def _follow(
        self, trial: TrialRun, task: TrialTask, should_stop: Callable[[], bool], goal: Goal | None
    ) -> str | None:
        """Read the script's reports until the task is complete or must stop; return the reason if the script fails."""
        started = received_at = time.monotonic()
        lines, steps, measured = -1, self._task_steps(task), 0
        while True:
            exit_code = trial.exit_code  # before the last reading of its reports
            trial.poll()
            now = time.monotonic()
            if trial.reports.lines != lines or exit_code is not None or trial.fault is not None:
                lines, received_at = trial.reports.lines, now
                step = trial.reports.step
                self._on_activity(Activity.LOADING if step < 0 else Activity.TRAINING, max(step, 0))
                reached = False
                while measured < len(steps) and (row := trial.row(steps[measured])) is not None and not reached:
                    measured += 1  # each measurement is handled once: there may be very many
                    reached = goal is not None and goal.is_reached_by(row[goal.metric])
                if reached or measured == len(steps) or trial.diverged_at is not None:
                    return None
                if exit_code is not None and trial.is_released:
                    trial.train(task, goal, should_stop)
                    continue
                failure = _find_failure(trial, task, steps[measured], exit_code)
                if failure is not None:
                    return failure
            elif now - received_at > self._context.trainer.timeout_s:
                silence = describe_silence(self._context.trainer.timeout_s, trial.reports.step)
                return silence + describe_tried(self._context.trainer.reports.text, trial.tried_lines)
            if should_stop():
                trial.stop(keep=self._context.trainer.resume)
                return None
            self._pool.reap()
            time.sleep(POLL_EVERY_S[(now - started > 1) + (now - started > 10)])

    def _fail(
        self, trial: TrialRun, task: TrialTask, goal: Goal | None, reason: str, system_kills: int
    ) -> TrialProgress:
        """Raise the failure, unless there are new measurements to return first: then the next attempt will raise."""
        trial.kill()
        code, failure = trial.exit_code, trial.explain(reason)
        progress = self._progress(trial, task, goal)
        trial.fold(failed=not progress.rows)
        if ran_out_of_memory(code, failure.log_lines, system_kills):
            self._pool.empty(keep=self._context.trainer.resume)  # paused scripts hold memory
            self._pool.max_paused //= 2
            raise MemoryError(failure.preceded_by("Out of memory: "))
        if not progress.rows:
            error = TrialSilentError if reason.startswith(SILENT) else TrialFailedError
            raise error(failure.followed_by(advise(failure.log_lines)))
        return replace(progress, failure=failure)

    def _settle(self, trial: TrialRun, task: TrialTask) -> None:
        """Leave the script waiting in memory, by itself or frozen; a diverged or finished one exits."""
        if not trial.running:
            return
        over = trial.diverged_at is not None or task.until_step >= self._context.study.train_steps
        until = time.monotonic() + (self._context.trainer.grace_s if over else SETTLE_S)
        while not trial.waits and trial.running and time.monotonic() < until:
            time.sleep(POLL_EVERY_S[0])
            trial.poll()
        if trial.diverged_at is not None:
            trial.kill()
        elif trial.running:
            if not trial.waits:
                trial.freeze()
            self._pool.put(trial, keep=self._context.trainer.resume)

    # --- the result of a task ----------------------------------------------------------------------------------

    def _task_steps(self, task: TrialTask) -> tuple[int, ...]:
        return self._steps[bisect_right(self._steps, task.from_step) : bisect_right(self._steps, task.until_step)]

    def _rows(self, trial: TrialRun, task: TrialTask, goal: Goal | None) -> list[Row]:
        """Return the measurements of the task, without gaps, up to divergence and to the goal."""
        measured, columns = trial.rows, trial.columns
        end = math.inf if trial.diverged_at is None else trial.diverged_at
        rows: list[Row] = []
        for step in self._task_steps(task):
            if step not in measured or step >= end:
                break
            rows.append((step, {name: measured[step].get(name, math.nan) for name in columns}))
            if goal is not None and goal.is_reached_by(measured[step][goal.metric]):
                break
        return rows

    def _is_complete(self, trial: TrialRun, task: TrialTask, goal: Goal | None) -> bool:
        rows = self._rows(trial, task, goal)
        if len(rows) == len(self._task_steps(task)):
            return True
        if rows and goal is not None and goal.is_reached_by(rows[-1][1].get(goal.metric, math.nan)):
            return True
        return trial.diverged_at is not None  # missing measurements will not come

    def _progress(self, trial: TrialRun, task: TrialTask, goal: Goal | None) -> TrialProgress:
        rows = self._rows(trial, task, goal)
        step = rows[-1][0] if rows else max(task.from_step, 0)
        diverged_at = trial.diverged_at if _ends_by_divergence(trial, rows, task, goal) else None
        facts = trial.reports.facts
        return TrialProgress(
            trial_id=task.trial_id,
            rows=tuple(rows),
            step=diverged_at or step,
            diverged_at=diverged_at,
            timing=trial.times(),
            hardware=Hardware(facts["hardware"], facts.get("platform")) if facts.get("hardware") else None,
            framework=facts.get("framework") or None,
            tokens_per_example=trial.reports.tokens_per_example,
        )


def _find_failure(trial: TrialRun, task: TrialTask, missing: int, exit_code: int | None) -> str | None:
    if trial.fault is not None:
        return describe_fault(trial.fault)
    if trial.reports.step > missing:
        following = min(stamp.step for stamp in trial.reports.stamps if stamp.step > missing)
        return describe_gap(missing, following)
    if exit_code is None:
        return None
    reported = [stamp.step for stamp in trial.reports.stamps]
    failure = describe_early_end(exit_code, reported, missing, task.until_step, trial.unread, trial.reports.last_step)
    return failure + describe_tried(trial.context.trainer.reports.text, trial.tried_lines)


def _ends_by_divergence(trial: TrialRun, rows: Sequence[Row], task: TrialTask, goal: Goal | None) -> bool:
    """Return True if the trial diverged within the task, and not after the goal."""
    if trial.diverged_at is None or trial.diverged_at > task.until_step:
        return False
    return goal is None or not any(goal.is_reached_by(row.get(goal.metric, math.nan)) for _, row in rows)
