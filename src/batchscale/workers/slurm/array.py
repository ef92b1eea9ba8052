"""The array of worker jobs: its places, those that must be submitted again, and the reasons why tasks end."""

import os
import time
from pathlib import Path

from batchscale.errors import RunError
from batchscale.study.failure import Failure
from batchscale.workers.handle import describe_exit
from batchscale.workers.runner import LossReason
from batchscale.workers.slurm.client import (
    ENDING,
    PREEMPTED,
    RUNNING,
    WAITING,
    QueuedTask,
    QueueView,
    SlurmClient,
    TaskKey,
)

ENDING_S = 40.0
"""The longest that a task may take to end, its 30 s of grace included, before its worker counts as gone."""

MAX_FAILURES = 3
MAX_PREEMPTIONS = 20
"""So many times the number of workers may tasks fail, or be preempted, in a row before any job is answered."""


def explain_end(task: QueuedTask | None, log: Path) -> tuple[LossReason, Failure]:
    """Classify the end of a task for the job that it was running, and describe it."""
    if task is None:
        return LossReason.DIED, describe_exit(0, log)
    if task.state in PREEMPTED:
        state = task.state.lower().replace("_", " ")
        detail = state if task.reason in ("", "None") else f"{state}, {task.reason}"
        return LossReason.PREEMPTED, Failure(f"SLURM took a worker away on {task.node or 'its node'} ({detail}).")
    failure = describe_exit(os.waitstatus_to_exitcode(task.status), log)
    if task.state == "OUT_OF_MEMORY":
        return LossReason.OUT_OF_MEMORY, failure.followed_by("\nSLURM reported that it was out of memory.")
    return LossReason.DIED, failure


class FailureLimit:
    """Counts ends of workers in a row before any job was answered."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._failures = self._preemptions = 0

    def reset(self) -> None:
        """Start counting anew: a job was answered."""
        self._failures = self._preemptions = 0

    def count(self, loss: LossReason, reason: Failure) -> None:
        """Count an end.

        Raises:
            RunError: there were too many.
        """
        self._preemptions += loss is LossReason.PREEMPTED
        self._failures += loss is not LossReason.PREEMPTED
        if self._failures >= MAX_FAILURES * self._workers:
            raise RunError(
                f"Workers must start, but {self._failures} jobs of SLURM in a row ended before they trained anything. "
                f"{reason}\nIf there are no log lines: is --out on a file system that all nodes have?"
            )
        if self._preemptions >= MAX_PREEMPTIONS * self._workers:
            raise RunError(
                f"Workers must run for a while, but {self._preemptions} in a row were taken away before they trained "
                f"anything. {reason} Run the same command again to continue."
            )


class JobArray:
    """Keeps a task in the queue, or running, for every place; on none of the nodes in ``exclude``."""

    def __init__(self, client: SlurmClient, size: int) -> None:
        self._client = client
        self._size = size
        self._view: QueueView | None = None
        self._submit_at = 0.0
        self._ending_since: dict[TaskKey, float] = {}
        self.failure_limit = FailureLimit(size)
        self.exclude: frozenset[str] = frozenset()

    def new_view(self) -> QueueView | None:
        """Return the client's view of the queue, if it is a new one."""
        view = self._client.view
        if view is None or view is self._view:
            return None
        self._view = view
        ending = {task.key for task in view.tasks if task.state in ENDING}
        self._ending_since = {key: self._ending_since.get(key, view.asked_at) for key in ending}
        return view

    def find_task(self, key: TaskKey, restarts: int, view: QueueView) -> tuple[bool, QueuedTask | None]:
        """Return whether the process of a task's n-th start may still run, and its entry in the queue."""
        task = view.by_key.get(key)
        if task is None or task.restarts > restarts:
            return False, task
        return self._may_run(task, view), task

    def _may_run(self, task: QueuedTask, view: QueueView) -> bool:
        """Return True if it runs, or is ending: one that is put in the queue again ends first."""
        if task.state in ENDING:
            return view.asked_at - self._ending_since[task.key] < ENDING_S
        return task.state in RUNNING

    def submit_missing(self, view: QueueView, pause_s: float) -> None:
        """Submit the places without a task, but not more often than this."""
        filled = {task.key.place for task in view.tasks if task.state in WAITING or self._may_run(task, view)}
        missing = [place for place in range(self._size) if place not in filled]
        now = time.monotonic()
        if missing and view.num_requests >= self._client.num_requests and now >= self._submit_at:
            self._submit_at = now + pause_s
            self._client.submit(missing, self.exclude)

    def ended_unregistered(
        self, view: QueueView, registered: set[TaskKey], handled: set[tuple[TaskKey, int]]
    ) -> list[QueuedTask]:
        """Return the tasks that ended before their worker registered, each once."""
        tasks = []
        for task in view.tasks:
            has_ended = task.state not in RUNNING | WAITING | ENDING
            if has_ended and task.key not in registered and (task.key, task.restarts) not in handled:
                handled.add((task.key, task.restarts))
                tasks.append(task)
        return tasks

    @property
    def notice(self) -> str:
        """A message for people about tasks that wait, or a SLURM that does not answer; else empty."""
        if self._client.problem:
            return f"{self._client.problem} The run continues by itself when SLURM answers again."
        tasks = [] if self._view is None else [task for task in self._view.tasks if task.state in WAITING]
        tasks = [task for task in tasks if task.reason not in ("", "None")]  # those were submitted just now
        reasons = ", ".join(sorted({task.reason for task in tasks}))
        return f"{len(tasks)} of {self._size} workers wait in SLURM's queue ({reasons})." if tasks else ""
