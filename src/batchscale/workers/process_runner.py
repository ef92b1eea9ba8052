"""What all runners with workers of their own do alike: give them jobs, and pass on what is asked of them."""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from batchscale.errors import RunError
from batchscale.study.failure import Failure
from batchscale.workers.handle import WorkerHandle
from batchscale.workers.holders import Holders
from batchscale.workers.messages import Stop
from batchscale.workers.runner import Event, Job, JobFailed, LossReason, Runner, WorkerInfo

W = TypeVar("W", bound=WorkerHandle)


class ProcessRunner(Runner, Generic[W]):
    """A runner that holds what it knows of its workers. How they come, go and are heard is each runner's own.

    ``_events`` is what the next `wait` says; no worker is replaced once the runner is ``_stopping``.
    """

    def __init__(self) -> None:
        self._workers: dict[str, W] = {}
        self._holders = Holders()
        self._events: list[Event] = []
        self._notices: list[str] = []
        self._stopping = False
        self._closed = False

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers that take jobs; none once it is stopping."""
        if self._stopping or self._closed:
            return ()
        return tuple(worker.info for worker in self._workers.values() if worker.takes_jobs)

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened to workers."""
        return tuple(self._notices)

    def waiting(self, worker_id: str) -> int:
        """How many jobs a worker has."""
        worker = self._workers.get(worker_id)
        return 0 if worker is None else len(worker.jobs)

    def submit(self, worker_id: str, job: Job) -> None:
        """Send a worker a job; if it has died or is gone, the next `wait` says that the job was not started."""
        if self._closed:
            raise RunError("A closed runner takes no jobs.")
        worker = self._workers.get(worker_id)
        if worker is None:
            self._events.append(
                JobFailed(job.job_id, worker_id, LossReason.NOT_STARTED, Failure("The worker is gone."))
            )
            return
        self._holders.note(worker_id, job)
        worker.give(job)

    def forget(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Pass it on to the workers that were given any of it."""
        for worker_id, message in self._holders.forget(batch_size, trial_ids, self._workers):
            self._workers[worker_id].tell(message)

    def shelve(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Pass it on to the workers that were given any of it: the one that holds a trial keeps its state."""
        for worker_id, message in self._holders.shelve(batch_size, steps, self._workers):
            self._workers[worker_id].tell(message)

    def stop(self) -> None:
        """Pass it on to every worker, once."""
        if not self._stopping:
            self._stopping = True
            for worker in self._workers.values():
                worker.tell(Stop())

    @property
    def at_rest(self) -> bool:
        """Whether every worker that has begun has said so."""
        return all(worker.at_rest for worker in self._workers.values() if worker.ready)
