"""The inline runner: one worker, in this process. For debugging: breakpoints and tracebacks work as usual."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import final

from batchscale.errors import RunError
from batchscale.machine import name_host
from batchscale.study.failure import Failure
from batchscale.workers.engine_host import EngineHost, find_engine
from batchscale.workers.environment import computing_like_a_worker
from batchscale.workers.runner import Event, Job, JobFailed, LossReason, Runner, Setup, WorkerActivity, WorkerInfo
from batchscale.workers.worker import explain_error

WORKER_ID = "inline"

MakeHost = Callable[..., EngineHost]
"""Makes the engine host from a setup, a worker's id, ``should_stop``, and ``report`` for its activity."""


def load_later(
    setup: Setup, worker_id: str, should_stop: Callable[[], bool], report: Callable[[WorkerActivity], None]
) -> EngineHost:
    """Make a host that loads its engine, which takes seconds, with the first job only."""
    return EngineHost(setup, worker_id, should_stop, report, lambda *args: find_engine(setup.engine)(*args))


@final
class InlineRunner(Runner):
    """Runs one job per call to `wait`, in the caller's thread. Until it is closed, the process computes as a worker."""

    def __init__(
        self,
        setup: Setup,
        should_stop: Callable[[], bool] = lambda: False,
        make_host: MakeHost = EngineHost,
    ) -> None:
        self._stop = threading.Event()
        self._events: list[Event] = []
        self._jobs: deque[Job] = deque()
        self._closed = False
        self._num_devices = setup.num_devices
        with ExitStack() as stack:
            stack.enter_context(computing_like_a_worker(setup.num_devices))  # before the engine is loaded
            self._host = make_host(
                setup, WORKER_ID, lambda: self._stop.is_set() or should_stop(), report=self._events.append
            )
            self._environment = stack.pop_all()

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The one worker."""
        return () if self._closed else (WorkerInfo(WORKER_ID, name_host(), self._num_devices),)

    def waiting(self, worker_id: str) -> int:
        """Return the number of queued jobs."""
        return len(self._jobs) if worker_id == WORKER_ID else 0

    def submit(self, worker_id: str, job: Job) -> None:
        """Queue a job."""
        if self._closed:
            raise RunError("A closed runner takes no jobs.")
        if worker_id == WORKER_ID:
            self._jobs.append(job)
        else:
            reason = Failure("There is no such worker.")
            self._events.append(JobFailed(job.job_id, worker_id, LossReason.NOT_STARTED, reason))

    def wait(self, timeout_s: float) -> list[Event]:  # noqa: ARG002 - the interface has it
        """Run the next job and return its events."""
        if self._jobs and not self._closed:
            self._events.append(self._run(self._jobs.popleft()))
        events = list(self._events)
        self._events.clear()
        return events

    def _run(self, job: Job) -> Event:
        try:
            return self._host.run(job)
        except (Exception, MemoryError) as error:  # noqa: BLE001 - whatever a trial raises is an outcome of its job
            return JobFailed(job.job_id, WORKER_ID, *explain_error(error))

    def discard(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Drop everything of these trials."""
        if not self._closed:
            self._host.discard(batch_size, trial_ids)

    def finish(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Store the states of these finished trials."""
        if not self._closed:
            self._host.finish(batch_size, steps)

    def stop(self) -> None:
        """End jobs early and save states."""
        if not self._stop.is_set() and not self._closed:
            self._stop.set()
            self._host.save()

    @property
    def at_rest(self) -> bool:
        """True if no job is queued."""
        return not self._jobs

    def kill(self) -> None:
        """Do nothing: there is no process but this one."""

    def close(self) -> None:
        """Drop everything."""
        if not self._closed:
            self._host.close()
        self._closed = True
        self._jobs.clear()
        self._events.clear()
        self._environment.close()
