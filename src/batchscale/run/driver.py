"""The driver: the one loop that feeds workers, takes in what they did and keeps the records.

It is the only writer of records, trains nothing itself, and loads no JAX. Everything it holds can be rebuilt from the
tree, so it may be killed at any instant.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from batchscale.errors import RecordsError, RunError, StorageError
from batchscale.machine import DISK_FULL
from batchscale.run.disk import OF_ONE_STUDY, DiskGuard
from batchscale.run.dispatch import STRETCH_S, Assignment, Dispatch
from batchscale.run.failures import Failures
from batchscale.run.signals import StopFlag
from batchscale.run.watch import Watch
from batchscale.run.writing import Writing
from batchscale.study.failure import Failure
from batchscale.study.study_facts import DamagedStudyError
from batchscale.study.study_run import StudyRun
from batchscale.study.tasks import TrialTask
from batchscale.workers.runner import Event, Job, JobFailed, JobResult, LossReason, Runner, WorkerActivity

QUEUE = 2
"""How many jobs a worker has at once: it starts the next while the driver takes in the last."""

WRITE_S = 0.05
"""The longest that records are written before workers are looked after again."""

FULL_DISK_S = 5.0
"""How long a run pauses when a worker found the disk full."""

LAST_STATES_S = 10.0
"""The longest that a finished run waits for the last states of its trials to be kept."""

REPORTING_SHARE = 0.03
"""The share of the time that may go into saying how a run stands: a large one is said less often."""

WRITING_SHARE = 0.3
"""The share of the time to stop that is kept for the last writing."""


class Result(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(frozen=True)
class DriverSettings:
    """``retries``: how often a trial is tried again after its worker died or raised, without progress in between.

    ``stretch_s`` is about how long a trial trains before its measurements come back.
    """

    retries: int = 3
    report_every_s: float = 1.0
    stretch_s: float = STRETCH_S


class Driver:
    """Runs studies to their end, or until asked to stop."""

    def __init__(
        self,
        runs: Sequence[StudyRun],
        runner: Runner,
        stop: StopFlag,
        disk: DiskGuard,
        settings: DriverSettings | None = None,
        report: Callable[["Driver"], None] = lambda _driver: None,
    ) -> None:
        self.runs = runs
        self.runner = runner
        self._settings = settings or DriverSettings()
        self.dispatch = Dispatch([run.state for run in runs], self._settings.stretch_s)
        self.failures = Failures(self._settings.retries)
        self.paused: str | None = None
        self.busy_s = 0.0
        self.watch = Watch()
        self._by_batch_size = {run.batch_size: run for run in runs}
        self._open = {run.batch_size: run for run in runs if not run.done}
        self._due = dict(self._open)  # studies that may have something to write, those that waited longest first
        self._writing = Writing()
        self._stop = stop
        self._disk = disk
        self._report = report
        self._jobs: dict[int, tuple[Job, StudyRun]] = {}
        self._next_job = 0
        self._report_at = 0.0
        self._full_until = 0.0

    def run(self) -> Result:
        """Go on until every study is done or the stop flag is set; then everything learned is on disk."""
        try:
            return self._run()
        finally:
            self._writing.close()

    def _run(self) -> Result:
        while self._open:
            if self._stop.is_set:
                self._wind_down()
                self._report(self)
                return Result.STOPPED
            started = time.monotonic()
            self._write_due()
            self._feed()
            self._report_now_and_then()
            self.busy_s += time.monotonic() - started
            idle = not self._due or self.paused is not None
            for event in self.runner.wait(0.1 if idle else 0.0):
                self._hear(event)
        self._report(self)
        self._await_last_states()
        return Result.FINISHED

    # --- feeding ---------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        there = {worker.worker_id: None for worker in self.runner.workers}
        self.dispatch.keep_workers(there)
        self.watch.keep_workers(there)
        if self.paused is not None:
            return
        hungry = list(there)
        while hungry:  # one job each in turn, so that no worker waits while another's queue fills
            hungry = [worker for worker in hungry if self.runner.waiting(worker) < QUEUE and not self._stop.is_set]
            hungry = [worker for worker in hungry if self._give(worker, len(there))]

    def _give(self, worker_id: str, workers: int) -> bool:
        chosen = self.dispatch.choose(worker_id, workers)
        if chosen is None:
            return False
        state, run = chosen.state, self._by_batch_size[chosen.state.study.batch_size]
        tasks = self._begin(run, chosen)
        if not tasks:
            return False
        goal = state.study.goal if state.rule.ends_at_goal else None
        job = Job(self._next_job, state.study, tasks, goal, state.memory.population)
        self._next_job += 1
        self._jobs[job.job_id] = (job, run)
        self.dispatch.note_given(worker_id, run.batch_size, [task.trial_id for task in tasks])
        self.runner.submit(worker_id, job)
        return True

    def _begin(self, run: StudyRun, chosen: Assignment) -> tuple[TrialTask, ...]:
        """The tasks of a job; fewer than chosen, or none, if the disk is too full to write down a new trial's id."""
        tasks: list[TrialTask] = []
        for need in chosen.needs:
            with self._guarding(run):
                tasks.append(run.begin(need))
            if self.paused is not None:
                break
        return tuple(tasks)

    # --- hearing ---------------------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        started = time.monotonic()
        if isinstance(event, WorkerActivity):
            self.watch.hear(event, started)
        elif isinstance(event, JobResult):
            self.watch.land(event.worker_id)
            self._take_in(*self._jobs.pop(event.job_id), event)
        else:
            self.watch.land(event.worker_id)
            self._count_loss(*self._jobs.pop(event.job_id), event)
        self.busy_s += time.monotonic() - started

    def _take_in(self, job: Job, run: StudyRun, done: JobResult) -> None:
        self._due.setdefault(run.batch_size, run)
        if not any(progress.failure for progress in done.progress):
            self.failures.note_answer()
        steps = 0
        for task, progress in zip(job.tasks, done.progress, strict=True):
            steps += max(0, progress.step - max(0, task.from_step))
            self.failures.note_step(run.batch_size, task.trial_id, progress.step)
            if progress.failure is not None:
                self.failures.count(LossReason.ERROR, progress.failure)
            if run.learn(progress, done.seconds / len(job.tasks), done.hardware):
                self.failures.note_progress(run.batch_size, task.trial_id)
                self.dispatch.trust(run.batch_size, task.trial_id)
            elif not self._stop.is_set and not done.cut_short:
                self._count_try(run, task.trial_id, Failure("The trial made no progress."))
        self.dispatch.note_cost(run.batch_size, done.seconds, steps, done.population)
        with self._guarding(run):
            run.set_population(done.population, done.progress[0].framework)

    def _count_loss(self, job: Job, run: StudyRun, lost: JobFailed) -> None:
        if lost.loss is LossReason.REFUSED:
            raise RunError(str(lost.reason))
        self._due.setdefault(run.batch_size, run)
        for task in job.tasks:
            run.state.release(task.trial_id)
        if self._stop.is_set:
            return  # a worker that is ended in the middle of a job is no failure
        self.failures.count(lost.loss, lost.reason)
        if lost.loss is LossReason.DISK_FULL:
            self._full_until = time.monotonic() + FULL_DISK_S
        elif lost.loss.is_fault and len(job.tasks) > 1:
            self.dispatch.suspect(run.batch_size, [task.trial_id for task in job.tasks])
        elif lost.loss.is_fault:
            self._count_try(run, job.tasks[0].trial_id, lost.reason)

    def _count_try(self, run: StudyRun, trial_id: int, reason: Failure) -> None:
        given_up = self.failures.count_try(run.batch_size, trial_id, reason)
        if given_up is None:
            return
        run.state.give_up(trial_id, given_up)
        if self.failures.is_hopeless(run.batch_size):
            raise RunError(
                f"Trials must be trainable, but the first {self.failures.given_up} all failed. {reason}\n"
                "Look at the experiment with --runner inline; run the same command again to go on."
            )

    # --- records ---------------------------------------------------------------------------------------------

    def _write_due(self) -> None:
        now = time.monotonic()
        until = now + WRITE_S
        self.paused = self._disk.complaint()
        if now < self._full_until:
            self.paused = "A worker found the disk full. Free some space; the run goes on by itself."
        due = [run for run in self._due.values() if run.look()]
        self._due = {run.batch_size: run for run in due}
        for run, error in self._writing.write(due, until):
            with self._guarding(run):
                if error is not None:
                    raise error
            self._let_go(run)
            del self._due[run.batch_size]
            if run.done:
                self._open.pop(run.batch_size, None)
            elif run.look():
                self._due[run.batch_size] = run  # behind those that had no turn

    def _let_go(self, run: StudyRun) -> None:
        """Tell workers what they need not hold any more."""
        released = run.take_released()
        over = (*released.forget, *released.shelve)
        self.dispatch.note_released(run.batch_size, over)
        self.failures.forget(run.batch_size, over)
        if released.forget:
            self.runner.forget(run.batch_size, released.forget)
        if released.shelve:
            self.runner.shelve(run.batch_size, released.shelve)
        if run.done:
            self.runner.forget(run.batch_size)

    @contextmanager
    def _guarding(self, run: StudyRun) -> Iterator[None]:
        """A full disk is a pause: the same writing is done again when there is room. A damaged study is set aside."""
        try:
            yield
        except (DamagedStudyError, RecordsError) as error:
            run.set_aside(str(error))
            self._open.pop(run.batch_size, None)
        except StorageError as error:
            if error.errno in OF_ONE_STUDY:
                run.set_aside(f"{error} Look at the study and run again.")
                self._open.pop(run.batch_size, None)
            elif error.errno in DISK_FULL:
                self.paused = str(error)
                self._due.setdefault(run.batch_size, run)
            else:
                raise

    def _report_now_and_then(self) -> None:
        started = time.monotonic()
        if started >= self._report_at:
            self._report(self)
            took = time.monotonic() - started
            self._report_at = started + max(self._settings.report_every_s, took / REPORTING_SHARE)

    # --- stopping --------------------------------------------------------------------------------------------

    def _await_last_states(self) -> None:
        """Let workers put the last trials on the shelf; they have nothing else to do."""
        self.runner.stop()
        until = time.monotonic() + LAST_STATES_S
        while not self.runner.at_rest and time.monotonic() < until:
            self.runner.wait(0.05)

    def _wind_down(self) -> None:
        """Let workers end their jobs and keep their states, as long as there is time; then write what is known.

        Workers end before the last writing, so that a slow disk cannot keep them alive. What is not written in time
        is trained again by the next run, to the same result.
        """
        self.runner.stop()
        writing_s = WRITING_SHARE * self._stop.seconds_left
        while self._stop.seconds_left > writing_s and not self.runner.at_rest:
            for event in self.runner.wait(0.05):
                self._hear(event)
        self.runner.close()
        until = time.monotonic() + self._stop.seconds_left
        for run in self.runs:
            if time.monotonic() < until:
                with self._guarding(run):
                    run.write_journals(until)
