"""The base of the runners whose workers are processes (local, Ray, SLURM): it sends jobs and requests to workers."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from batchscale.errors import RunError
from batchscale.study.failure import Failure
from batchscale.workers.handle import WorkerHandle
from batchscale.workers.messages import Discard, Finish, Reply, Stop
from batchscale.workers.runner import Event, Job, JobFailed, LossReason, Runner, WorkerInfo

W = TypeVar("W", bound=WorkerHandle)

NOTICE_LOG = "workers.log"
"""The file, beside the logs of the workers, that has each replacement of a worker with its reason."""


class TrialLocations:
    """The workers that received jobs of each trial: they alone hold states of it.

    Messages about every finished trial to every worker would be a thousand per trial on a thousand workers. ``alive``
    are, in every method, the workers that still run.
    """

    def __init__(self) -> None:
        self._trials: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._studies: dict[int, set[str]] = defaultdict(set)

    def add(self, worker_id: str, job: Job) -> None:
        """Record that a worker received a job."""
        batch_size = job.study.batch_size
        self._studies[batch_size].add(worker_id)
        for task in job.tasks:
            self._trials[batch_size][task.trial_id].add(worker_id)

    def remove(self, batch_size: int, trial_ids: Iterable[int], alive: Container[str]) -> dict[str, list[int]]:
        """Remove trials, and return by worker those that it must drop.

        A trial that no worker received may have files of an earlier run: all workers of its study must drop it.
        """
        trials_of: dict[str, list[int]] = defaultdict(list)
        all_workers, study = self._workers_of(batch_size, alive), self._trials.get(batch_size, {})
        for trial_id in trial_ids:
            workers = [worker for worker in study.pop(trial_id, ()) if worker in alive]
            for worker in workers or all_workers:
                trials_of[worker].append(trial_id)
        return trials_of

    def remove_study(self, batch_size: int, alive: Container[str]) -> list[str]:
        """Remove a study, and return the workers that must drop it."""
        workers = self._workers_of(batch_size, alive)
        self._trials.pop(batch_size, None)
        self._studies.pop(batch_size, None)
        return workers

    def _workers_of(self, batch_size: int, alive: Container[str]) -> list[str]:
        return [worker for worker in sorted(self._studies.get(batch_size, ())) if worker in alive]


class ProcessRunner(Runner, Generic[W]):
    """A runner that holds handles of its workers. How they start, end and are listened to is up to each runner.

    ``_events`` are returned by the next `wait`; no worker is replaced once the runner is ``_stopping``. Notices are
    also written to the file ``_notice_log``, if there is one.
    """

    def __init__(self) -> None:
        self._workers: dict[str, W] = {}
        self._locations = TrialLocations()
        self._events: list[Event] = []
        self._notices: list[str] = []
        self._notice_log: Path | None = None
        self._stopping = False
        self._closed = False

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers that accept jobs; none once the runner is stopping."""
        if self._stopping or self._closed:
            return ()
        return tuple(worker.info for worker in self._workers.values() if worker.takes_jobs)

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages about workers for people."""
        return tuple(self._notices)

    def _notify(self, text: str) -> None:
        """Add a notice, and write it to the log with the time."""
        self._notices.append(text)
        if self._notice_log is not None:
            with contextlib.suppress(OSError), self._notice_log.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def _recycle(self, worker: W, reply: Reply, max_bytes: float | None) -> None:
        """Let a worker that should be replaced after this reply exit when its jobs are answered."""
        reason = worker.find_restart_reason(reply, max_bytes)
        if reason is not None:
            self._notify(f"Worker {worker.info.worker_id} is replaced by a fresh process. {reason}")
            worker.drain()

    def waiting(self, worker_id: str) -> int:
        """Return the number of unanswered jobs of a worker."""
        worker = self._workers.get(worker_id)
        return 0 if worker is None else len(worker.jobs)

    def submit(self, worker_id: str, job: Job) -> None:
        """Send a worker a job; if the worker is gone, the next `wait` returns the job as not started."""
        if self._closed:
            raise RunError("A closed runner takes no jobs.")
        worker = self._workers.get(worker_id)
        if worker is None:
            reason = Failure("The worker is gone.")
            self._events.append(JobFailed(job.job_id, worker_id, LossReason.NOT_STARTED, reason))
            return
        self._locations.add(worker_id, job)
        worker.submit(job)

    def discard(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Send it to the workers that received any of these trials."""
        if not trial_ids:
            for worker_id in self._locations.remove_study(batch_size, self._workers):
                self._workers[worker_id].send(Discard(batch_size))
            return
        for worker_id, trials in self._locations.remove(batch_size, trial_ids, self._workers).items():
            self._workers[worker_id].send(Discard(batch_size, tuple(trials)))

    def finish(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Send it to the workers that received any of these trials: the one that holds a trial stores its state."""
        for worker_id, trials in self._locations.remove(batch_size, steps, self._workers).items():
            self._workers[worker_id].send(Finish(batch_size, {trial_id: steps[trial_id] for trial_id in trials}))

    def stop(self) -> None:
        """Send it to every worker, once."""
        if not self._stopping:
            self._stopping = True
            for worker in self._workers.values():
                worker.send(Stop())

    @property
    def at_rest(self) -> bool:
        """True if every worker that was ready has saved its states."""
        return all(worker.at_rest for worker in self._workers.values() if worker.ready)
