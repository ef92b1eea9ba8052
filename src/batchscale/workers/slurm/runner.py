"""The SLURM runner: keeps an array of worker jobs in the queue and exchanges messages with those that run.

Only SLURM, or a worker's own last message, ends a worker: a worker that is not responding is cancelled first, so that
no trial is ever at two workers.
"""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import final

from batchscale.errors import RunError, one_line
from batchscale.spec.experiment import SlurmOptions
from batchscale.study.failure import Failure
from batchscale.workers.messages import Answered, Begin, Raised, Refused, Reply
from batchscale.workers.process_runner import NOTICE_LOG, ProcessRunner
from batchscale.workers.remote_setup import make_absolute, make_remote_setup
from batchscale.workers.runner import Event, LossReason, Setup, WorkerInfo
from batchscale.workers.slurm.array import JobArray, explain_end
from batchscale.workers.slurm.channel import Alive, ExitReason, Leaving, Left, Registered, WorkerMessage
from batchscale.workers.slurm.client import JobQueue, QueueView, SlurmClient, SlurmCommands, SlurmError, TaskKey
from batchscale.workers.slurm.handle import SlurmWorker
from batchscale.workers.slurm.heartbeat import Heartbeat, HeartbeatSettings
from batchscale.workers.slurm.session import (
    MakeJobQueue,
    clear_sessions,
    end_jobs,
    job_name,
    log_of,
    make_session,
    sbatch_options,
    worker_script,
)
from batchscale.workers.slurm.worker import HEARTBEAT_FILE, WORKERS, worker_arguments

FIND_EVERY_S = 0.5
CLOSE_S = 15.0
ENDED_S = 3.0
SLEEP_S = 0.02


@dataclass(frozen=True)
class SlurmSettings:
    """The number of workers, the folder where they meet the driver, their logs, and the resources of each.

    The folder is on a file system that all nodes have. The state of jobs is read from SLURM every ``view_every_s``.
    """

    workers: int
    folder: Path
    log_dir: Path
    options: SlurmOptions = field(default_factory=SlurmOptions)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    view_every_s: float = 10.0


@final
class SlurmRunner(ProcessRunner[SlurmWorker]):
    """Worker jobs of SLURM. Out of memory does not reduce their number: each has the memory of its own job."""

    def __init__(self, setup: Setup, settings: SlurmSettings, make_scheduler: MakeJobQueue | None = None) -> None:
        super().__init__()
        self._setup = make_absolute(setup)
        self._remote = make_remote_setup(setup.experiment)
        self._settings = settings
        self._next_number = 0
        self._find_at = 0.0
        self._departed: list[SlurmWorker] = []
        self._registered: set[TaskKey] = set()
        self._ended: set[tuple[TaskKey, int]] = set()
        self._any_answer = False
        make = make_scheduler or partial(_make_commands, settings, setup.num_devices)
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.log_dir.mkdir(parents=True, exist_ok=True)
        self._notice_log = settings.log_dir / NOTICE_LOG
        if clear_sessions(settings.folder, make, settings.heartbeat.leave_s):
            self._notices.append("Jobs that an earlier run had left on SLURM were ended.")
        for log in settings.log_dir.glob("slurm-*.log"):
            log.unlink(missing_ok=True)
        self._session = make_session(settings.folder)
        self._heartbeat = Heartbeat(self._session / HEARTBEAT_FILE, settings.heartbeat.interval_s)
        self._scheduler: JobQueue = make(job_name(self._session), self._session)
        try:
            self._scheduler.submit(range(settings.workers), ())
        except BaseException:
            self._heartbeat.end()
            shutil.rmtree(self._session, ignore_errors=True)
            raise
        self._client = SlurmClient(self._scheduler, settings.view_every_s)
        self._array = JobArray(self._client, settings.workers)

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages about workers, and about the queue."""
        notice = self._array.notice
        return (*self._notices, notice) if notice and not self._stopping else tuple(self._notices)

    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events of the workers, and the failed jobs of those that are gone."""
        until = time.monotonic() + timeout_s
        while not self._closed:
            self._find_workers()
            for worker in list(self._workers.values()):
                worker.flush()
                self._receive(worker)
            self._update()
            remaining_s = until - time.monotonic()
            if self._events or remaining_s <= 0:
                break
            time.sleep(min(SLEEP_S, remaining_s))
        events, self._events = self._events, []
        return [] if self._closed else events

    def kill(self) -> None:
        """End all jobs, from any thread; none is submitted from now on."""
        self._stopping = True
        self._heartbeat.end()
        self._client.drop_requests()
        with contextlib.suppress(SlurmError):  # then they leave by themselves: there is no heartbeat any more
            self._scheduler.cancel()

    def close(self) -> None:
        """End all jobs and wait for their end; jobs that SLURM does not report on are cleared by the next run."""
        if self._closed:
            return
        self._closed = self._stopping = True
        self._heartbeat.end()
        self._client.close()
        if end_jobs(self._scheduler, CLOSE_S, ENDED_S):
            shutil.rmtree(self._session, ignore_errors=True)
        self._workers.clear()

    # --- new workers -----------------------------------------------------------------------------------------

    def _find_workers(self) -> None:
        """Begin with the workers that have made a folder since the last call."""
        now = time.monotonic()
        if now < self._find_at or self._stopping:
            return
        self._find_at = now + FIND_EVERY_S
        folder = self._session / WORKERS
        with contextlib.suppress(OSError):
            os.utime(folder)  # then a network file system answers with the server's content, not with its cache
            names = {entry.name for entry in os.scandir(folder)}
            names -= {worker.folder.name for worker in (*self._workers.values(), *self._departed)}
            for name in sorted(names):
                self._begin(folder / name)

    def _begin(self, folder: Path) -> None:
        info = WorkerInfo(f"slurm-{self._next_number}", "", self._setup.num_devices)
        self._next_number += 1
        self._workers[info.worker_id] = worker = SlurmWorker(info, folder)
        worker.send(Begin(self._setup, info.worker_id, self._remote))

    # --- messages of workers ---------------------------------------------------------------------------------

    def _receive(self, worker: SlurmWorker, at_once: bool = False) -> None:
        for message in worker.receive(at_once):
            self._handle_message(worker, message)

    def _handle_message(self, worker: SlurmWorker, message: WorkerMessage) -> None:
        if isinstance(message, Registered):
            self._register(worker, message)
        elif isinstance(message, Leaving):
            worker.leaving = message.reason
        elif isinstance(message, Left):
            self._handle_left(worker)
        elif not isinstance(message, Alive):
            self._handle_reply(worker, message)

    def _register(self, worker: SlurmWorker, message: Registered) -> None:
        worker.registered = message
        worker.info = replace(worker.info, host=message.node)
        key = TaskKey(message.job, message.place)
        self._registered.add(key)
        for other in list(self._workers.values()):  # SLURM runs a task once at a time: an earlier process is gone
            if other is not worker and other.key == key:
                self._receive(other, at_once=True)
                self._lose(other, LossReason.PREEMPTED, Failure("SLURM started its job anew."))
        for other in [departed for departed in self._departed if departed.key == key]:
            self._departed.remove(other)
            other.remove()

    def _handle_refusal(self, refused: Refused) -> None:
        """End the run if no worker has trained yet, else exclude the node."""
        if not self._any_answer:
            raise RunError(refused.reason)
        self._array.exclude |= {refused.host}
        self._notices.append(f"{refused.reason} It is not used any more.")

    def _handle_reply(self, worker: SlurmWorker, reply: Reply) -> None:
        if isinstance(reply, Refused):
            self._handle_refusal(reply)
        elif isinstance(reply, Answered):
            self._any_answer = True
            self._array.failure_limit.reset()
        elif isinstance(reply, Raised) and reply.loss is LossReason.REFUSED:
            reply = replace(reply, reason=reply.reason.preceded_by(f"Node {worker.info.host}: "))
        self._events += worker.handle_reply(reply)
        self._recycle(worker, reply, None if worker.registered is None else worker.registered.memory_bytes)

    # --- workers that end ------------------------------------------------------------------------------------

    def _handle_left(self, worker: SlurmWorker) -> None:
        """Remove a worker after its last message."""
        reason = Failure(f"A worker on {worker.info.host} left: {worker.leaving or 'it restarts'}.")
        self._lose(worker, LossReason.PREEMPTED, reason, keep_folder=True)
        if worker.leaving == ExitReason.TIME_LIMIT and worker.key is not None and not self._stopping:
            self._client.requeue(worker.key)
        self._departed.append(worker)  # its folder stays: without it, it would end before SLURM ends it

    def _update(self) -> None:
        """Compare the workers with SLURM's queue, if there is a new view of it."""
        view = self._array.new_view()
        if view is None:
            return
        for worker in list(self._workers.values()):
            self._check(worker, view)
        for worker in list(self._departed):
            if worker.key is None or not self._array.find_task(worker.key, worker.restarts, view)[0]:
                self._departed.remove(worker)
                worker.remove()
        if self._stopping:
            return
        for task in self._array.ended_unregistered(view, self._registered, self._ended):
            self._array.failure_limit.count(*explain_end(task, self._log(task.key)))
        self._array.submit_missing(view, self._settings.view_every_s)

    def _check(self, worker: SlurmWorker, view: QueueView) -> None:
        if view.asked_at < worker.found_at:
            return
        silence_s = time.monotonic() - worker.received_at
        if worker.key is None:
            if silence_s > self._settings.heartbeat.cancel_s:
                self._lose(worker, LossReason.DIED, Failure("A worker never registered."))
            return
        may_run, task = self._array.find_task(worker.key, worker.restarts, view)
        if not may_run:
            self._receive(worker, at_once=True)  # all its messages have been written by now
            if worker.info.worker_id in self._workers:
                loss, reason = explain_end(task, self._log(worker.key))
                self._lose(worker, loss, reason)
                if not self._stopping:
                    self._notify(f"A worker on {worker.info.host} was replaced. {one_line(reason, 200)}")
                if not worker.trials:
                    self._array.failure_limit.count(loss, reason)
        elif silence_s > self._settings.heartbeat.cancel_s and not worker.cancelled:
            worker.cancelled = True
            self._notices.append(
                f"A worker on {worker.info.host} was not responding for {silence_s:.0f} s and is cancelled."
            )
            self._client.cancel(worker.key)

    def _lose(self, worker: SlurmWorker, loss: LossReason, reason: Failure, keep_folder: bool = False) -> None:
        """Remove a worker; its unanswered jobs fail. Without its folder it would leave if it still lived."""
        del self._workers[worker.info.worker_id]
        if worker.key is not None:
            self._ended.add((worker.key, worker.restarts))
        self._events += worker.fail_jobs(loss, reason)
        if not keep_folder:
            worker.remove()

    def _log(self, key: TaskKey) -> Path:
        return log_of(self._settings.log_dir, key.job, key.place)


def _make_commands(settings: SlurmSettings, num_devices: int, name: str, session: Path) -> SlurmCommands:
    script = worker_script(worker_arguments(session.resolve(), num_devices, settings.heartbeat))
    return SlurmCommands(name, sbatch_options(settings.options, settings.log_dir.resolve()), script)
