"""The loop of a run: it assigns jobs to workers, handles their results and writes the records.

It is the only writer of records, trains nothing itself, and loads no JAX. Everything it holds can be rebuilt from the
tree, so it may be killed at any instant.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

from batchscale.errors import RecordsError, RunError, StorageError
from batchscale.machine import DISK_FULL
from batchscale.records.model import Status
from batchscale.run.activity import ActivityMonitor
from batchscale.run.disk import OF_ONE_STUDY, DiskGuard
from batchscale.run.scheduler import MAX_DIVERGED, MAX_TIME_OUTS, Assignment, RetryPolicy, Scheduler
from batchscale.run.settings import LoopSettings
from batchscale.run.signals import StopFlag
from batchscale.run.tracking import Tracking
from batchscale.study.failure import Failure
from batchscale.study.identity import DamagedStudyError
from batchscale.study.study import StudyRun
from batchscale.study.trial import TrialTask
from batchscale.workers.runner import Event, Job, JobFailed, JobResult, LossReason, Runner, WorkerActivity

DEBUG_ADVICE = "Debug the experiment with --runner inline; run the same command again to continue."
JOBS_PER_WORKER = 2
"""A worker starts its next job while the loop handles the result of the last."""

WRITE_S = 0.05
"""The longest time that records are written before workers get jobs again."""

FULL_DISK_S = 5.0
"""The time that a run pauses when a worker found the disk full."""

LAST_STATES_S = 10.0
"""The longest time that a finished run waits until the last states of its trials are stored."""

REPORTING_SHARE = 0.03
"""The share of the time that status reports may take: a large run reports less often."""

WRITING_SHARE = 0.3
"""The share of the time to stop that is reserved for the last writing."""

WRITER_THREADS = 16


class RunResult(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"


class RunLoop:
    """Runs studies to their end, or until the stop flag is set."""

    def __init__(
        self,
        runs: Sequence[StudyRun],
        runner: Runner,
        stop: StopFlag,
        disk: DiskGuard,
        settings: LoopSettings | None = None,
        report: Callable[["RunLoop"], None] = lambda _loop: None,
        tracking: Tracking | None = None,
    ) -> None:
        self.runs = runs
        self.runner = runner
        self._settings = settings or LoopSettings()
        self.scheduler = Scheduler([run.state for run in runs], self._settings.stretch_s)
        self.failures = RetryPolicy(self._settings.retries)
        self.paused: str | None = None
        self.busy_s = 0.0
        self.monitor = ActivityMonitor()
        self._by_batch_size = {run.batch_size: run for run in runs}
        self._open = {run.batch_size: run for run in runs if not run.done}
        self._due = dict(self._open)  # studies that may have something to write, those that waited longest first
        self._writer = ParallelWriter()
        self._stop = stop
        self._disk = disk
        self._report = report
        self._tracking = tracking
        self._jobs: dict[int, tuple[Job, StudyRun]] = {}
        self._next_job = 0
        self._report_at = 0.0
        self._full_until = 0.0

    @property
    def tracking_notices(self) -> list[str]:
        """A sentence for each tracker that has failed."""
        return [] if self._tracking is None else self._tracking.notices

    def run(self) -> RunResult:
        """Run until every study is done or the stop flag is set; then all results are on disk."""
        try:
            return self._run()
        finally:
            self._writer.close()

    def _run(self) -> RunResult:
        while self._open:
            if self._stop.is_set:
                self._shut_down()
                self._report(self)
                return RunResult.STOPPED
            started = time.monotonic()
            due = self._find_due()
            self._assign_jobs()  # before writing: a worker should not wait for the disk
            self._write(due)
            self._assign_jobs()
            self._report_if_due()
            self.busy_s += time.monotonic() - started
            idle = not self._due or self.paused is not None
            for event in self.runner.wait(0.1 if idle else 0.0):
                self._handle_event(event)
        self._report(self)
        self._await_last_states()
        return RunResult.FINISHED

    # --- jobs ------------------------------------------------------------------------------------------------

    def _assign_jobs(self) -> None:
        worker_ids = {worker.worker_id: None for worker in self.runner.workers}
        self.scheduler.set_workers(worker_ids)
        self.monitor.set_workers(worker_ids)
        if self.paused is not None:
            return
        idle_workers = list(worker_ids)
        while idle_workers:  # one job each in turn, so that no worker waits while another's queue fills
            idle_workers = [
                worker_id
                for worker_id in idle_workers
                if self.runner.waiting(worker_id) < JOBS_PER_WORKER and not self._stop.is_set
            ]
            idle_workers = [worker_id for worker_id in idle_workers if self._assign(worker_id, len(worker_ids))]

    def _assign(self, worker_id: str, num_workers: int) -> bool:
        assignment = self.scheduler.next_assignment(worker_id, num_workers)
        if assignment is None:
            return False
        state, run = assignment.state, self._by_batch_size[assignment.state.study.batch_size]
        tasks = self._start_trials(run, assignment)
        if not tasks:
            return False
        goal = state.study.goal if state.current.rules.rule.ends_at_goal else None
        job = Job(self._next_job, state.study, tasks, goal, state.saved.population)
        self._next_job += 1
        self._jobs[job.job_id] = (job, run)
        self.scheduler.mark_assigned(worker_id, run.batch_size, [task.trial_id for task in tasks])
        self.runner.submit(worker_id, job)
        return True

    def _start_trials(self, run: StudyRun, assignment: Assignment) -> tuple[TrialTask, ...]:
        """Return the tasks of a job; fewer, or none, if the disk is too full to write a new trial's id."""
        tasks: list[TrialTask] = []
        for request in assignment.requests:
            with self._handling_disk_errors(run):
                tasks.append(run.start(request))
            if self.paused is not None:
                break
        return tuple(tasks)

    # --- events ----------------------------------------------------------------------------------------------

    def _handle_event(self, event: Event) -> None:
        started = time.monotonic()
        if isinstance(event, WorkerActivity):
            self.monitor.update(event, started)
            self._settle_population(event)
        else:
            self.monitor.finish(event.worker_id)
            job, run = self._jobs.pop(event.job_id)
            self._due.setdefault(run.batch_size, run)
            if isinstance(event, JobResult):
                self._handle_result(job, run, event)
            else:
                self._handle_loss(job, run, event)
        self.busy_s += time.monotonic() - started

    def _settle_population(self, event: WorkerActivity) -> None:
        """Store how many trials of a study are trained together, so that other workers can begin with it too."""
        run = self._open.get(event.batch_size)
        if event.population is not None and run is not None:
            with self._handling_disk_errors(run):
                run.set_population(event.population)

    def _handle_result(self, job: Job, run: StudyRun, done: JobResult) -> None:
        self._count_outcomes(run, done)
        steps = 0
        for task, progress in zip(job.tasks, done.progress, strict=True):
            steps += max(0, progress.step - max(0, task.from_step))
            if self._tracking is not None:
                self._tracking.on_progress(run.batch_size, task, progress)
            self.failures.set_step(run.batch_size, task.trial_id, progress.step)
            if progress.failure is not None:
                self.failures.count_failure(LossReason.ERROR, progress.failure)
            if run.handle_progress(progress, done.seconds / len(job.tasks), done.hardware):
                self.failures.reset_tries(run.batch_size, task.trial_id)
                self.scheduler.end_isolation(run.batch_size, task.trial_id)
            elif not self._stop.is_set and not done.cut_short:
                self._count_try(run, task.trial_id, Failure("The trial made no progress."))
        timing = done.progress[-1].timing
        seconds = max(0.0, done.seconds - timing.get("compile_s", 0.0))
        evaluations = sum(len(progress.rows) for progress in done.progress)
        self.scheduler.add_cost(run.batch_size, seconds, steps, done.population, evaluations)
        if run.state.experiment.trainer is not None:
            self.scheduler.set_start_cost(run.batch_size, timing.get("warm_up_s", 0.0), timing.get("step_time_s", 0.0))
        with self._handling_disk_errors(run):
            run.set_population(done.population)
            run.set_framework(done.progress[0].framework)
            run.set_tokens(done.progress[0].tokens_per_example)

    def _count_outcomes(self, run: StudyRun, done: JobResult) -> None:
        """Count a job without failures; trials of a script that only diverge are no success."""
        if any(progress.failure for progress in done.progress):
            return
        if run.state.experiment.trainer is None or any(progress.rows for progress in done.progress):
            self.failures.count_success()
            return
        for progress in done.progress:
            if progress.diverged_at is not None:
                self.failures.count_divergence()
        recorded = any(run.records.counts[Status.COMPLETE] for run in self.runs)
        if self.failures.only_divergence and not recorded and not self._settings.keep_going:
            raise RunError(
                f"Trials must be able to train, but the first {MAX_DIVERGED} all diverged before their first "
                f"measurement: {run.state.study.goal.metric} was NaN or infinite at once, or the script called "
                "run.diverged. Check the script with 'batchscale trainer check', and the ranges of [search.space]. If "
                "most points do diverge there, continue with --keep-going."
            )

    def _handle_loss(self, job: Job, run: StudyRun, lost: JobFailed) -> None:
        if lost.loss is LossReason.REFUSED:
            raise RunError(str(lost.reason))
        for task in job.tasks:
            run.state.release(task.trial_id)
        if self._stop.is_set:
            return  # a worker that is ended in the middle of a job is no failure
        self.failures.count_failure(lost.loss, lost.reason)
        if lost.loss is LossReason.DISK_FULL:
            self._full_until = time.monotonic() + FULL_DISK_S
        elif lost.loss.is_fault and len(job.tasks) > 1:
            self.scheduler.isolate(run.batch_size, [task.trial_id for task in job.tasks])
        elif lost.loss.is_fault:
            self._count_try(run, job.tasks[0].trial_id, lost.reason, lost.loss)
        if self.failures.only_time_outs and not self._settings.keep_going:
            raise RunError(
                f"Trials must be measured, but the first {MAX_TIME_OUTS} scripts reported nothing. {lost.reason}\n"
                "Check the script with 'batchscale trainer check'; to try all trials, continue with --keep-going."
            )

    def _count_try(self, run: StudyRun, trial_id: int, reason: Failure, loss: LossReason = LossReason.ERROR) -> None:
        given_up = self.failures.count_try(run.batch_size, trial_id, reason, loss)
        if given_up is None:
            return
        run.state.give_up(trial_id, given_up)
        if self.failures.is_hopeless(run.batch_size):
            raise RunError(
                f"Trials must be trainable, but the first {self.failures.given_up} all failed. {reason}\n{DEBUG_ADVICE}"
            )

    # --- records ---------------------------------------------------------------------------------------------

    def _find_due(self) -> list[StudyRun]:
        """Return the studies that have something to write, after their new results were evaluated."""
        self.paused = self._disk.complaint()
        if time.monotonic() < self._full_until:
            self.paused = "A worker found the disk full. Free some space; the run continues by itself."
        due = [run for run in self._due.values() if run.refresh()]
        self._due = {run.batch_size: run for run in due}
        return due

    def _write(self, due: Sequence[StudyRun]) -> None:
        for run, error in self._writer.write(due, time.monotonic() + WRITE_S):
            with self._handling_disk_errors(run):
                if error is not None:
                    raise error
            self._release(run)
            del self._due[run.batch_size]
            if run.done:
                self._open.pop(run.batch_size, None)
            elif run.refresh():
                self._due[run.batch_size] = run  # behind those that had no turn

    def _release(self, run: StudyRun) -> None:
        """Send workers the trials whose states they need not hold any more."""
        released = run.take_released()
        ended = (*released.discard, *released.finish)
        if self._tracking is not None:
            self._tracking.on_recorded(run.batch_size, ended)
        self.scheduler.release(run.batch_size, ended)
        self.failures.release(run.batch_size, ended)
        if released.discard:
            self.runner.discard(run.batch_size, released.discard)
        if released.finish:
            self.runner.finish(run.batch_size, released.finish)
        if run.done:
            self.runner.discard(run.batch_size)

    @contextlib.contextmanager
    def _handling_disk_errors(self, run: StudyRun) -> Iterator[None]:
        """Pause on a full disk, and write again when there is room; set a damaged study aside."""
        try:
            yield
        except (DamagedStudyError, RecordsError) as error:
            run.set_aside(str(error))
            self._open.pop(run.batch_size, None)
        except StorageError as error:
            if error.errno in OF_ONE_STUDY:
                run.set_aside(f"{error} Check the study and run again.")
                self._open.pop(run.batch_size, None)
            elif error.errno in DISK_FULL:
                self.paused = str(error)
                self._due.setdefault(run.batch_size, run)
            else:
                raise

    def _report_if_due(self) -> None:
        started = time.monotonic()
        if started >= self._report_at:
            self._report(self)
            took = time.monotonic() - started
            self._report_at = started + max(self._settings.report_every_s, took / REPORTING_SHARE)

    # --- stopping --------------------------------------------------------------------------------------------

    def _await_last_states(self) -> None:
        """Wait until workers have stored the last trials; they have nothing else to do."""
        self.runner.stop()
        until = time.monotonic() + LAST_STATES_S
        while not self.runner.at_rest and time.monotonic() < until:
            self.runner.wait(0.05)

    def _shut_down(self) -> None:
        """Let workers end their jobs and store their states, as long as there is time; then write all results.

        Workers end before the last writing, so that a slow disk cannot keep them alive. What is not written in time
        is trained again by the next run, to the same result.
        """
        self.runner.stop()
        writing_s = WRITING_SHARE * self._stop.seconds_left
        while self._stop.seconds_left > writing_s and not self.runner.at_rest:
            for event in self.runner.wait(0.05):
                self._handle_event(event)
        self.runner.close()
        until = time.monotonic() + self._stop.seconds_left
        for run in self.runs:
            if time.monotonic() < until:
                with self._handling_disk_errors(run):
                    run.write_journals(until)


WriteResult = tuple[StudyRun, Exception | None]
"""A study that had its turn, and the error that stopped its writing."""


class ParallelWriter:
    """Writes the records of several studies at once.

    A disk that must confirm every write spends most of its time waiting, and confirms several writes in the time of
    one. Each study is used by one thread at a time, and by none when a call has returned.
    """

    def __init__(self, threads: int = WRITER_THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="records")
        self._threads = threads

    def write(self, runs: Sequence[StudyRun], until: float) -> list[WriteResult]:
        """Give each study a turn, as long as the monotonic clock is before ``until``; at least the first ones.

        Studies that had no turn are not in the result.
        """
        waiting, results = deque(runs), deque[WriteResult]()
        if len(runs) <= 1:
            _write_in_turn(waiting, results, until)
            return list(results)
        threads = min(self._threads, len(runs))
        for future in [self._pool.submit(_write_in_turn, waiting, results, until) for _ in range(threads)]:
            future.result()
        return list(results)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def _write_in_turn(waiting: deque[StudyRun], results: deque[WriteResult], until: float) -> None:
    """Write one study after the other, at least one, while other threads do the same."""
    with contextlib.suppress(IndexError):  # none is waiting any more
        while True:
            run = waiting.popleft()
            try:
                run.write_due(until)
            except Exception as error:  # noqa: BLE001 - raised again in the loop's own thread
                results.append((run, error))
            else:
                results.append((run, None))
            if time.monotonic() >= until:
                return
