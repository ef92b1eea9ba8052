"""A cluster that trains nothing: as many workers as asked for, in this process, in a time of its own.

It keeps the promises of a runner. A job takes the seconds that its steps take at the simulated pace, and the clock goes
on to the next answers whenever the driver waits: so the driver is never idle, and what is measured is the driver.
"""

import heapq
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from batchscale.records.metadata.trial import Hardware
from batchscale.study.failure import Failure
from batchscale.study.trial import TrialProgress, TrialTask
from batchscale.workers.runner import Event, Job, JobFailed, JobResult, LossReason, Runner, WorkerInfo

HARDWARE = Hardware("simulated", "cpu", num_devices=1, num_hosts=1)
DIVERGES_ABOVE = 0.5
"""The learning rate from which trials diverge: about one in thirteen of those that are drawn between 0.0001 and 1."""


@dataclass
class SimulatedWorker:
    """A worker and the jobs that it was given; the first one is under way."""

    info: WorkerInfo
    jobs: deque[Job] = field(default_factory=deque)


@final
class SimulatedCluster(Runner):
    """``trial_s`` is what a whole trial takes, ``burst`` how many answers arrive together at most.

    ``runner_s`` is the time that the simulation itself took, ``messages`` counts what workers were told to let go.
    """

    def __init__(self, workers: int, trial_s: float = 60.0, burst: int = 64) -> None:
        self._workers = {
            f"simulated-{number}": SimulatedWorker(WorkerInfo(f"simulated-{number}")) for number in range(workers)
        }
        self._infos = tuple(worker.info for worker in self._workers.values())
        self._trial_s = trial_s
        self._burst = burst
        self._due: list[tuple[float, int, str]] = []  # when, which job, by whom
        self._lost: list[Event] = []
        self._stopped = False
        self.clock_s = 0.0
        self.busy_s = 0.0
        self.runner_s = 0.0
        self.answers = 0
        self.measurements = 0
        self.messages = 0
        self.first_job_at: float | None = None

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """All of them, from the start to the end."""
        return self._infos

    def waiting(self, worker_id: str) -> int:
        """How many jobs a worker has."""
        return len(self._workers[worker_id].jobs) if worker_id in self._workers else 0

    def submit(self, worker_id: str, job: Job) -> None:
        """Give a worker a job."""
        started = time.perf_counter()
        if self.first_job_at is None:
            self.first_job_at = time.monotonic()
        worker = self._workers.get(worker_id)
        if worker is None:
            self._lost.append(
                JobFailed(job.job_id, worker_id, LossReason.NOT_STARTED, Failure("There is no such worker."))
            )
            return
        worker.jobs.append(job)
        if len(worker.jobs) == 1:
            self._begin(worker)
        self.runner_s += time.perf_counter() - started

    def wait(self, timeout_s: float) -> list[Event]:  # noqa: ARG002 - its clock does not wait
        """The next answers; the clock goes on to them."""
        started = time.perf_counter()
        events, self._lost = self._lost, []
        while self._due and len(events) < self._burst:
            self.clock_s, _, worker_id = heapq.heappop(self._due)
            worker = self._workers[worker_id]
            job = worker.jobs.popleft()
            seconds = self._seconds(job)
            self.busy_s += seconds
            progress = tuple(train(job, task, self._stopped) for task in job.tasks)
            events.append(JobResult(job.job_id, worker_id, progress, seconds, 1, HARDWARE))
            self.answers += 1
            self.measurements += sum(len(one.rows) for one in progress)
            if worker.jobs:
                self._begin(worker)
        self.runner_s += time.perf_counter() - started
        return events

    def _begin(self, worker: SimulatedWorker) -> None:
        job = worker.jobs[0]
        heapq.heappush(self._due, (self.clock_s + self._seconds(job), job.job_id, worker.info.worker_id))

    def _seconds(self, job: Job) -> float:
        steps = sum(task.until_step - max(0, task.from_step) for task in job.tasks)
        return self._trial_s * steps / job.study.train_steps

    def discard(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:  # noqa: ARG002
        """Nothing is held; the messages of a real cluster are counted."""
        self.messages += 1

    def finish(self, batch_size: int, steps: Mapping[int, int]) -> None:  # noqa: ARG002
        """Nothing is held; the messages of a real cluster are counted."""
        self.messages += 1

    def stop(self) -> None:
        """Jobs under way end where they are."""
        self._stopped = True

    @property
    def at_rest(self) -> bool:
        """Whether every job is answered."""
        return not self._due and not self._lost

    def kill(self) -> None:
        """There is no process but this one."""

    def close(self) -> None:
        """Drop all jobs."""
        self._due.clear()
        self._lost.clear()


def train(job: Job, task: TrialTask, stopped: bool) -> TrialProgress:
    """What a trial measures: everything follows from its learning rate."""
    study, goal = job.study, job.goal
    rate = task.parameters["learning_rate"]
    diverged_at = max(1, int(study.train_steps * 0.05 / rate)) if rate > DIVERGES_ABOVE else None
    until = task.from_step if stopped else task.until_step
    last = until if diverged_at is None else min(until, diverged_at - 1)
    steps = [step for step in study.evaluation_steps if task.from_step < step <= last]
    rows = [(step, measure(rate, step / study.train_steps)) for step in steps]
    reached = [goal is not None and goal.is_reached_by(values[goal.metric]) for _, values in rows]
    ended = diverged_at if diverged_at is not None and diverged_at <= until and not any(reached) else None
    rows = rows[: reached.index(True) + 1] if any(reached) else rows
    return TrialProgress(task.trial_id, tuple(rows), rows[-1][0] if rows else max(0, task.from_step), ended, {})


def measure(rate: float, share: float) -> dict[str, float]:
    """The metrics at a share of the step budget: the best learning rate is 0.03."""
    error = 0.9 * math.exp(-6.0 * share / (1.0 + abs(math.log10(rate / 0.03)))) + 0.01
    return {
        "val/classification_error": error,
        "val/cross_entropy_error": 2.3 * error,
        "train/classification_error": 0.9 * error,
        "train/cross_entropy_error": 2.1 * error,
    }
