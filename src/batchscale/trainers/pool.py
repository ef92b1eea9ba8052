"""The paused scripts of a worker, which wait in memory, and the scripts that are about to exit.

One pool per process, shared by its studies, because they share its memory.
"""

import math
import time
from dataclasses import dataclass

from batchscale.trainers.trial_run import StudyContext, TrialRun

DEFAULT_MAX_PAUSED = 16
"""Starting a script again costs seconds, waiting costs memory: this many may wait, if there is room."""

REAP_EVERY_S = 0.1


@dataclass
class _Exiting:
    trial: TrialRun
    deadline: float
    remove: bool


class ScriptPool:
    """At most ``max_paused`` waiting scripts of ``max_bytes`` together; beyond that, one is stopped."""

    def __init__(self, max_paused: int = DEFAULT_MAX_PAUSED, max_bytes: float = math.inf) -> None:
        self.max_paused = max_paused
        self._max_bytes = max_bytes
        self._paused: list[TrialRun] = []
        self._bytes: dict[int, int] = {}  # by the identity of the object: trials of two studies may have the same id
        self._exiting: list[_Exiting] = []
        self._reaped_at = 0.0

    def take(self, trial: TrialRun) -> None:
        """Remove a trial that is about to train from the pool."""
        self._paused = [paused for paused in self._paused if paused is not trial]
        for exiting in [entry for entry in self._exiting if entry.trial is trial]:
            self._end(exiting)
        self.reap()

    def put(self, trial: TrialRun, keep: bool) -> None:
        """Add a paused trial. Beyond the limit the one that has trained least is stopped, the newest among equals.

        Trials of a race take turns, so that the one that has waited longest is needed next.
        """
        if not trial.running:
            return
        self._paused.append(trial)
        self._bytes[id(trial)] = trial.memory_bytes()
        while len(self._paused) > self.max_paused or self._is_too_large():
            steps = [paused.reports.step for paused in self._paused]
            position = max(range(len(steps)), key=lambda index: (-steps[index], index))
            self._paused.pop(position).stop(keep)

    def _is_too_large(self) -> bool:
        return len(self._paused) > 1 and sum(self._bytes[id(paused)] for paused in self._paused) > self._max_bytes

    def release(self, trial: TrialRun, keep: bool, remove: bool, grace_s: float) -> None:
        """Let the script of a trial that is no longer needed exit while others train."""
        self._paused = [paused for paused in self._paused if paused is not trial]
        trial.request_exit(keep)
        self._exiting.append(_Exiting(trial, time.monotonic() + grace_s, remove))
        self.reap()

    def empty(self, keep: bool) -> None:
        """Stop all waiting scripts: their memory is needed, or the process is about to end."""
        while self._paused:
            self._paused.pop().stop(keep)

    def reap(self) -> None:
        """Clean up after scripts that have exited, or had their time to; at most once per `REAP_EVERY_S`.

        A paused script may have exited because another worker trains its trial.
        """
        now = time.monotonic()
        if now - self._reaped_at < REAP_EVERY_S:
            return
        self._reaped_at = now
        self._paused = [paused for paused in self._paused if paused.running]
        for exiting in list(self._exiting):
            if not exiting.trial.running or now > exiting.deadline:
                self._end(exiting)

    def finish(self, context: StudyContext) -> None:
        """Wait until the exiting scripts of a study have ended, each within its time."""
        for exiting in [entry for entry in self._exiting if entry.trial.context is context]:
            while exiting.trial.running and time.monotonic() < exiting.deadline:
                time.sleep(0.005)
            self._end(exiting)

    def _end(self, exiting: _Exiting) -> None:
        self._exiting.remove(exiting)
        exiting.trial.kill()
        if exiting.remove:
            exiting.trial.remove()
