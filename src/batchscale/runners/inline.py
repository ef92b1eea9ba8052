"""The inline runner: one worker, in this process. For debugging: breakpoints and tracebacks work as usual."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from batchscale.errors import RunError
from batchscale.runners.host import EngineHost
from batchscale.runners.runner import Job, Lost, Outcome, Runner, Setup
from batchscale.runners.worker import explain_error


class InlineRunner(Runner):
    """Runs one job per call to `wait`, while the caller waits."""

    def __init__(self, setup: Setup, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._stop = threading.Event()
        self._host = EngineHost(setup, worker=0, should_stop=lambda: self._stop.is_set() or should_stop())
        self._jobs: deque[Job] = deque()
        self._closed = False

    @property
    def workers(self) -> tuple[int, ...]:
        """The one worker."""
        return () if self._closed else (0,)

    def waiting(self, worker: int) -> int:  # noqa: ARG002 - the interface has it
        """How many jobs it has."""
        return len(self._jobs)

    def submit(self, worker: int, job: Job) -> None:  # noqa: ARG002 - the interface has it
        """Put a job in the queue."""
        if self._closed:
            raise RunError("A closed runner takes no jobs.")
        self._jobs.append(job)

    def wait(self, timeout_s: float) -> list[Outcome]:  # noqa: ARG002 - the interface has it
        """The outcome of the next job, which runs now."""
        if self._closed or not self._jobs:
            return []
        job = self._jobs.popleft()
        try:
            return [self._host.run(job)]
        except (Exception, MemoryError) as error:  # noqa: BLE001 - whatever a trial raises is an outcome of its job
            loss, reason = explain_error(error)
            return [Lost(job.job_id, 0, loss, reason)]

    def forget(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Drop what is held of these trials."""
        if not self._closed:
            self._host.forget(batch_size, trial_ids)

    def shelve(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Put these trials on the shelf."""
        if not self._closed:
            self._host.shelve(batch_size, steps)

    def stop(self) -> None:
        """Let jobs end early and keep states."""
        if not self._stop.is_set() and not self._closed:
            self._stop.set()
            self._host.keep()

    @property
    def at_rest(self) -> bool:
        """Whether no job is left."""
        return not self._jobs

    def kill(self) -> None:
        """There is no process but this one."""

    def close(self) -> None:
        """Drop everything."""
        self._closed = True
        self._jobs.clear()
