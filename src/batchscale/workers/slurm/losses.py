"""Why a task of SLURM ended, for the driver and for people, and when so many have ended that it makes no sense."""

import os
from pathlib import Path

from batchscale.errors import RunError
from batchscale.study.failure import Failure
from batchscale.workers.death import describe_death
from batchscale.workers.runner import LossReason
from batchscale.workers.slurm.commands import TAKEN, QueuedTask

MAX_FAILURES = 3
MAX_TAKEN = 20
"""So many times the number of workers may tasks fail, or be taken away, in a row before any job is answered."""


def explain_end(task: QueuedTask | None, log: Path) -> tuple[LossReason, Failure]:
    """What the end of a task means for the job that it was at."""
    if task is None:
        return LossReason.DIED, describe_death(0, log)
    if task.state in TAKEN:
        words = f"SLURM took a worker away on {task.node or 'its node'} ({_words(task)})."
        return LossReason.PREEMPTED, Failure(words)
    said = describe_death(os.waitstatus_to_exitcode(task.status), log)
    if task.state == "OUT_OF_MEMORY":
        return LossReason.OUT_OF_MEMORY, said.followed_by("\nSLURM reported that it was out of memory.")
    return LossReason.DIED, said


def _words(task: QueuedTask) -> str:
    state = task.state.lower().replace("_", " ")
    return state if task.reason in ("", "None") else f"{state}, {task.reason}"


class Endurance:
    """Counts ends of workers in a row that brought nothing."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._failed = self._taken = 0

    def reset(self) -> None:
        """A worker has trained something."""
        self._failed = self._taken = 0

    def count(self, loss: LossReason, reason: Failure) -> None:
        """Take in an end.

        Raises:
            RunError: there were too many.
        """
        self._taken += loss is LossReason.PREEMPTED
        self._failed += loss is not LossReason.PREEMPTED
        if self._failed >= MAX_FAILURES * self._workers:
            raise RunError(
                f"Workers must start, but {self._failed} jobs of SLURM in a row ended before they trained anything. "
                f"{reason}\nWithout any lines: is --out on a file system that all nodes have?"
            )
        if self._taken >= MAX_TAKEN * self._workers:
            raise RunError(
                f"Workers must be left in peace for a while, but {self._taken} in a row were taken away before they "
                f"trained anything. {reason} Run the same command again to go on."
            )
