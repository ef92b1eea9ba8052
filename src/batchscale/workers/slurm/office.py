"""The one place that talks with SLURM during a run: a thread of its own, so that a slow controller holds up nothing.

Orders are carried out one after the other; between them SLURM is asked now and then how our tasks stand. An order that
fails is told and tried again by whoever gave it: a controller that does not answer is a matter of patience.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from batchscale.workers.slurm.commands import QueuedTask, Scheduler, SlurmError, TaskKey

CLOSE_S = 10.0
"""How long the end of a command is waited for."""


@dataclass(frozen=True)
class QueueView:
    """How our tasks stood. ``asked_at`` is just before SLURM was asked; ``orders`` were carried out before that."""

    tasks: tuple[QueuedTask, ...]
    asked_at: float
    orders: int

    @cached_property
    def by_key(self) -> dict[TaskKey, QueuedTask]:
        """Each task by its key."""
        return {task.key: task for task in self.tasks}


class Office:
    """Carries out orders and keeps the latest view. ``problem`` is what SLURM last refused, until it answers again."""

    def __init__(self, scheduler: Scheduler, look_every_s: float) -> None:
        self._scheduler = scheduler
        self._look_every_s = look_every_s
        self._orders: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._done = 0
        self._dropping = False
        self.given = 0
        self.view: QueueView | None = None
        self.problem = ""
        self._thread = threading.Thread(target=self._work, name="slurm", daemon=True)
        self._thread.start()

    def submit(self, places: Sequence[int], avoid: frozenset[str]) -> None:
        """Have an array of these tasks submitted."""
        chosen = tuple(places)
        self._order(lambda: self._scheduler.submit(chosen, avoid))

    def cancel(self, key: TaskKey | None = None) -> None:
        """Have a task ended, or all."""
        self._order(lambda: self._scheduler.cancel(key))

    def requeue(self, key: TaskKey) -> None:
        """Have a task put in the queue again."""
        self._order(lambda: self._scheduler.requeue(key))

    def close(self) -> None:
        """Carry out nothing more; what is being carried out ends first, so that nothing is submitted after this."""
        self.drop()
        self._orders.put(None)
        self._thread.join(CLOSE_S)

    def drop(self) -> None:
        """Carry out no order any more."""
        self._dropping = True

    def _order(self, order: Callable[[], object]) -> None:
        self.given += 1
        self._orders.put(order)

    def _work(self) -> None:
        looked_at = -self._look_every_s
        while True:
            pause_s = max(0.0, looked_at + self._look_every_s - time.monotonic())
            try:
                order = self._orders.get(timeout=pause_s) if pause_s else self._orders.get_nowait()
            except queue.Empty:
                looked_at = time.monotonic()
                self._attempt(self._look)
                continue
            if order is None:
                return
            if not self._dropping:
                self._attempt(order)
            self._done += 1
            looked_at = -self._look_every_s  # what it brought about is looked at next

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
            self.problem = ""
        except SlurmError as error:
            self.problem = str(error)

    def _look(self) -> None:
        asked_at, done = time.monotonic(), self._done
        self.view = QueueView(tuple(self._scheduler.look()), asked_at, done)
