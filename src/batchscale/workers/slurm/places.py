"""The places of an array of workers: which are taken, and which must be submitted anew."""

import time

from batchscale.workers.slurm.commands import ENDING, RUNNING, WAITING, QueuedTask, TaskKey
from batchscale.workers.slurm.losses import Endurance
from batchscale.workers.slurm.office import Office, QueueView

ENDING_S = 40.0
"""How long a task may take to end, its 30 s of grace included, before its worker counts as gone all the same."""


class ArrayPlaces:
    """Keeps a task in the queue, or running, for every place."""

    def __init__(self, office: Office, count: int) -> None:
        self._office = office
        self._count = count
        self._view: QueueView | None = None
        self._submit_at = 0.0
        self._ending_since: dict[TaskKey, float] = {}
        self.patience = Endurance(count)
        self.avoid: frozenset[str] = frozenset()

    def look(self) -> QueueView | None:
        """How the tasks stand, if there is anything new."""
        view = self._office.view
        if view is None or view is self._view:
            return None
        self._view = view
        ending = {task.key for task in view.tasks if task.state in ENDING}
        self._ending_since = {key: self._ending_since.get(key, view.asked_at) for key in ending}
        return view

    def still_runs(self, key: TaskKey, restarts: int, view: QueueView) -> tuple[bool, QueuedTask | None]:
        """Whether the process of a task that was started for the n-th time may still run, and what SLURM says of it."""
        task = view.by_key.get(key)
        if task is None or task.restarts > restarts:
            return False, task
        return self._may_run(task, view), task

    def _may_run(self, task: QueuedTask, view: QueueView) -> bool:
        """Whether it runs, or is ending: one that is put in the queue again ends first."""
        if task.state in ENDING:
            return view.asked_at - self._ending_since[task.key] < ENDING_S
        return task.state in RUNNING

    def refill(self, view: QueueView, pause_s: float) -> None:
        """Submit what is missing, but not more often than this."""
        taken = {task.key.place for task in view.tasks if task.state in WAITING or self._may_run(task, view)}
        missing = [place for place in range(self._count) if place not in taken]
        now = time.monotonic()
        if missing and view.orders >= self._office.given and now >= self._submit_at:
            self._submit_at = now + pause_s
            self._office.submit(missing, self.avoid)

    def count_unseen(self, view: QueueView, known: set[TaskKey], handled: set[tuple[TaskKey, int]]) -> list[QueuedTask]:
        """Tasks that ended before their worker was ever heard of, each once."""
        found = []
        for task in view.tasks:
            over = task.state not in RUNNING | WAITING | ENDING
            if over and task.key not in known and (task.key, task.restarts) not in handled:
                handled.add((task.key, task.restarts))
                found.append(task)
        return found

    @property
    def waiting(self) -> str:
        """What people should know of tasks that wait, and of a SLURM that does not answer."""
        if self._office.problem:
            return f"{self._office.problem} The run goes on by itself when SLURM answers again."
        tasks = [] if self._view is None else [task for task in self._view.tasks if task.state in WAITING]
        tasks = [task for task in tasks if task.reason not in ("", "None")]  # those were submitted just now
        reasons = ", ".join(sorted({task.reason for task in tasks}))
        return f"{len(tasks)} of {self._count} workers wait in SLURM's queue ({reasons})." if tasks else ""
