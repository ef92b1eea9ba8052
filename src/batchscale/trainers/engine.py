"""The engine of a study whose trials are trained by a script of the user's own: the same interface as our own engine.

Owns what is done when: a script is started, heard until it has measured what the task wants, and left waiting. Does not
decide which trials run, or for how long.
"""

import math
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from batchscale.errors import TrialFailedError
from batchscale.machine import count_oom_kills
from batchscale.records.metadata.trial import Hardware
from batchscale.spec.goal import Goal
from batchscale.study.trial import Activity, Row, TrialProgress, TrialTask
from batchscale.trainers.failures import (
    advise,
    describe_early_end,
    describe_fault,
    describe_gap,
    describe_silence,
    ran_out_of_memory,
)
from batchscale.trainers.pool import Pool
from batchscale.trainers.trial_run import Surroundings, TrialRun

LOOK_EVERY_S = (0.005, 0.02, 0.05)
"""How often a script is heard: at first, after a second, after ten. It waits for that only at the end of a task."""

SETTLE_S = 1.0
"""How long a script that has measured its last step may take to say that it waits, or to leave; then it is frozen."""


class TrainerEngine:
    """Trains the trials of one study by a script, one at a time; paused scripts wait in the pool."""

    population_size = 1

    def __init__(self, around: Surroundings, pool: Pool, shelf_bytes: int = 0) -> None:
        self._around = around
        self._pool = pool
        self._shelf_bytes = shelf_bytes
        self._steps = around.study.evaluation_steps
        self._trials: dict[int, TrialRun] = {}
        self._shelf: dict[int, int] = {}
        self._tell: Callable[[Activity, int], None] = lambda _activity, _step: None

    def advance(
        self, tasks: Sequence[TrialTask], should_stop: Callable[[], bool], goal: Goal | None
    ) -> list[TrialProgress]:
        """Trains every task to its ``until_step``, to its divergence, or to its first measurement of the goal.

        Raises:
            TrialFailedError: a script did not do what it must, with the reason and its last lines.
            MemoryError: a script died for want of memory.
        """
        return [self._advance(task, should_stop, goal) for task in tasks]

    def listen(self, listener: Callable[[Activity, int], None]) -> None:
        """Tells this what is going on from now on: whether a script is starting, and the step that it has come to."""
        self._tell = listener

    def save(self, trial_id: int) -> None:
        """Makes the state of a waiting script survive it, if it can resume: saved on request, or as it leaves."""
        trial = self._trials.get(trial_id)
        if trial is None or not trial.running or not self._around.trainer.resume:
            return
        if not trial.heard.can_save:
            self._pool.take(trial)
            trial.leave(keep=True)
            return
        saves, until = trial.heard.saves, time.monotonic() + self._around.trainer.grace_s
        trial.ask_to_save()
        while trial.heard.saves == saves and trial.running and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S[0])
            trial.poll()

    def shelve(self, trial_id: int, step: int) -> None:  # noqa: ARG002 - the interface has it
        """Lets the script of an ended trial leave; what it saved stays on disk while there is room."""
        trial = self._trials.pop(trial_id, None)
        if trial is None:
            return
        kept = self._around.trainer.resume and sum(self._shelf.values()) < self._shelf_bytes
        if kept:
            self._shelf[trial_id] = trial.num_bytes()
        self._pool.dismiss(trial, keep=kept, remove=not kept, grace_s=self._around.trainer.grace_s)

    def forget(self, trial_id: int) -> None:
        """Drops a trial with everything of it: it is finished, or not needed."""
        trial = self._trials.pop(trial_id, None)
        self._shelf.pop(trial_id, None)
        if trial is not None:
            self._pool.dismiss(trial, keep=False, remove=True, grace_s=self._around.trainer.grace_s)
        else:  # a worker that is gone may have left it
            shutil.rmtree(self._around.root / str(trial_id), ignore_errors=True)

    def trial(self, trial_id: int) -> TrialRun:
        """The trial as this engine holds it."""
        return self._trials[trial_id]

    def close(self) -> None:
        """Ends the scripts of this study."""
        for trial in self._trials.values():
            self._pool.take(trial)
            trial.leave(keep=self._around.trainer.resume)
        self._trials.clear()
        self._pool.finish(self._around)

    # --- one task --------------------------------------------------------------------------------------------

    def _advance(self, task: TrialTask, should_stop: Callable[[], bool], goal: Goal | None) -> TrialProgress:
        trial = self._find(task)
        self._pool.take(trial)
        trial.poll()
        if not self._is_answered(trial, task, goal) and not should_stop():
            kills = count_oom_kills()
            trial.go_on(task, goal)
            failure = self._follow(trial, task, should_stop, goal)
            if failure is not None:
                return self._fail(trial, task, goal, failure, count_oom_kills() - kills)
        self._settle(trial, task)
        return self._progress(trial, task, goal)

    def _find(self, task: TrialTask) -> TrialRun:
        """The trial as it is: one whose script is not here may have been trained by another worker since."""
        trial = self._trials.get(task.trial_id)
        if trial is None or not trial.running:
            trial = self._trials[task.trial_id] = TrialRun(self._around, task)
        return trial

    def _follow(
        self, trial: TrialRun, task: TrialTask, should_stop: Callable[[], bool], goal: Goal | None
    ) -> str | None:
        """Hear the script until the task is done, or it is asked to stop; the reason if it fails."""
        started = heard_at = time.monotonic()
        lines, wanted, measured = -1, self._wanted(task), 0
        while True:
            ended = trial.exit_code  # before the last look at what it said
            trial.poll()
            now = time.monotonic()
            if trial.heard.lines != lines or ended is not None or trial.fault is not None:
                lines, heard_at = trial.heard.lines, now
                step = trial.heard.step
                self._tell(Activity.LOADING if step < 0 else Activity.TRAINING, max(step, 0))
                reached = False
                while measured < len(wanted) and (row := trial.row(wanted[measured])) is not None and not reached:
                    measured += 1  # each measurement is looked at once: there may be very many
                    reached = goal is not None and goal.is_reached_by(row[goal.metric])
                if reached or measured == len(wanted) or trial.diverged_at is not None:
                    return None
                failure = self._find_failure(trial, task, wanted[measured], ended)
                if failure is not None:
                    return failure
            elif now - heard_at > self._around.trainer.timeout_s:
                return describe_silence(self._around.trainer.timeout_s, trial.heard.step)
            if should_stop():
                trial.leave(keep=self._around.trainer.resume)
                return None
            self._pool.tend()
            time.sleep(LOOK_EVERY_S[(now - started > 1) + (now - started > 10)])

    def _find_failure(self, trial: TrialRun, task: TrialTask, missing: int, ended: int | None) -> str | None:
        if trial.fault is not None:
            return describe_fault(trial.fault)
        if trial.heard.step > missing:
            following = min(stamp.step for stamp in trial.heard.stamps if stamp.step > missing)
            return describe_gap(missing, following)
        if ended is None:
            return None
        reported = [stamp.step for stamp in trial.heard.stamps]
        return describe_early_end(ended, reported, missing, task.until_step, trial.unread, trial.heard.last_step)

    def _fail(
        self, trial: TrialRun, task: TrialTask, goal: Goal | None, reason: str, system_kills: int
    ) -> TrialProgress:
        """Raise what went wrong, unless there are new measurements to tell first: then the next attempt will raise."""
        trial.kill()
        code, failure = trial.exit_code, trial.explain(reason)
        progress = self._progress(trial, task, goal)
        trial.fold(failed=not progress.rows)
        if ran_out_of_memory(code, failure.log_lines, system_kills):
            self._pool.empty(keep=self._around.trainer.resume)  # paused scripts hold memory
            self._pool.max_paused //= 2
            raise MemoryError(failure.preceded_by("Out of memory: "))
        if not progress.rows:
            raise TrialFailedError(failure.followed_by(advise(failure.log_lines)))
        return replace(progress, failure=failure)

    def _settle(self, trial: TrialRun, task: TrialTask) -> None:
        """Leave the script waiting in memory, by its own will or frozen; a diverged one, or one at its end, leaves."""
        if not trial.running:
            return
        over = trial.diverged_at is not None or task.until_step >= self._around.study.train_steps
        until = time.monotonic() + (self._around.trainer.grace_s if over else SETTLE_S)
        while not trial.waits and trial.running and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S[0])
            trial.poll()
        if trial.diverged_at is not None:
            trial.kill()
        elif trial.running:
            if not trial.waits:
                trial.freeze()
            self._pool.put(trial, keep=self._around.trainer.resume)

    # --- what a trial has to tell ------------------------------------------------------------------------------

    def _wanted(self, task: TrialTask) -> tuple[int, ...]:
        return self._steps[bisect_right(self._steps, task.from_step) : bisect_right(self._steps, task.until_step)]

    def _rows(self, trial: TrialRun, task: TrialTask, goal: Goal | None) -> list[Row]:
        """The measurements that the task wants, without gaps, up to divergence and to the goal."""
        known, columns = trial.rows, trial.columns
        end = math.inf if trial.diverged_at is None else trial.diverged_at
        rows: list[Row] = []
        for step in self._wanted(task):
            if step not in known or step >= end:
                break
            rows.append((step, {name: known[step].get(name, math.nan) for name in columns}))
            if goal is not None and goal.is_reached_by(known[step][goal.metric]):
                break
        return rows

    def _is_answered(self, trial: TrialRun, task: TrialTask, goal: Goal | None) -> bool:
        rows, wanted = self._rows(trial, task, goal), self._wanted(task)
        if len(rows) == len(wanted):
            return True
        if rows and goal is not None and goal.is_reached_by(rows[-1][1].get(goal.metric, math.nan)):
            return True
        return trial.diverged_at is not None  # whatever is missing will not come

    def _progress(self, trial: TrialRun, task: TrialTask, goal: Goal | None) -> TrialProgress:
        rows = self._rows(trial, task, goal)
        step = rows[-1][0] if rows else max(task.from_step, 0)
        diverged_at = trial.diverged_at if self._is_over(trial, rows, task, goal) else None
        facts = trial.heard.facts
        return TrialProgress(
            trial_id=task.trial_id,
            rows=tuple(rows),
            step=diverged_at or step,
            diverged_at=diverged_at,
            timing=trial.times(),
            hardware=Hardware(facts["hardware"], facts.get("platform")) if facts.get("hardware") else None,
            framework=facts.get("framework") or None,
        )

    def _is_over(self, trial: TrialRun, rows: Sequence[Row], task: TrialTask, goal: Goal | None) -> bool:
        """Whether divergence is part of the answer: within the task, and not behind the goal."""
        if trial.diverged_at is None or trial.diverged_at > task.until_step:
            return False
        return goal is None or not any(goal.is_reached_by(row.get(goal.metric, math.nan)) for _, row in rows)
