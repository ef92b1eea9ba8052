"""The trials of a worker whose scripts wait in memory, and those that are on their way out.

One pool per process, shared by its studies, because memory is.
"""

import math
import time
from dataclasses import dataclass

from batchscale.trainers.trial_run import Surroundings, TrialRun

DEFAULT_MAX_PAUSED = 16
"""Starting a script again costs seconds, waiting costs memory: so many may, if there is room."""


TEND_EVERY_S = 0.1


@dataclass
class _Leaving:
    trial: TrialRun
    deadline: float
    remove: bool


class Pool:
    """Holds at most ``max_paused`` waiting scripts of ``max_bytes`` together; one more is asked to save and leave."""

    def __init__(self, max_paused: int = DEFAULT_MAX_PAUSED, max_bytes: float = math.inf) -> None:
        self.max_paused = max_paused
        self._max_bytes = max_bytes
        self._paused: list[TrialRun] = []
        self._bytes: dict[int, int] = {}  # by the identity of the object: trials of two studies may have the same id
        self._leaving: list[_Leaving] = []
        self._tended_at = 0.0

    def take(self, trial: TrialRun) -> None:
        """A trial is about to train: it waits no longer, and those on their way out are looked after."""
        self._paused = [one for one in self._paused if one is not trial]
        for leaving in [one for one in self._leaving if one.trial is trial]:
            self._end(leaving)
        self.tend()

    def put(self, trial: TrialRun, keep: bool) -> None:
        """A trial waits from now on. Beyond the limit the one that has trained least leaves, the newest among equals.

        Trials of a race take turns, so that whoever waits longest is needed next.
        """
        if not trial.running:
            return
        self._paused.append(trial)
        self._bytes[id(trial)] = trial.memory_bytes()
        while len(self._paused) > self.max_paused or self._is_heavy():
            steps = [one.heard.step for one in self._paused]
            place = max(range(len(steps)), key=lambda index: (-steps[index], index))
            self._paused.pop(place).leave(keep)

    def _is_heavy(self) -> bool:
        return len(self._paused) > 1 and sum(self._bytes[id(one)] for one in self._paused) > self._max_bytes

    def dismiss(self, trial: TrialRun, keep: bool, remove: bool, grace_s: float) -> None:
        """A trial is not needed any more: its script may end in peace while others train."""
        self._paused = [one for one in self._paused if one is not trial]
        trial.ask_to_leave(keep)
        self._leaving.append(_Leaving(trial, time.monotonic() + grace_s, remove))
        self.tend()

    def empty(self, keep: bool) -> None:
        """Let all waiting scripts leave: their memory is needed, or the process is about to end."""
        while self._paused:
            self._paused.pop().leave(keep)

    def tend(self) -> None:
        """Look after those on their way out, now and then; one that was handed to another worker waits no longer."""
        now = time.monotonic()
        if now - self._tended_at < TEND_EVERY_S:
            return
        self._tended_at = now
        self._paused = [one for one in self._paused if one.running]
        for leaving in list(self._leaving):
            if not leaving.trial.running or now > leaving.deadline:
                self._end(leaving)

    def finish(self, around: Surroundings) -> None:
        """Wait until those of a study that are on their way out have ended, each within its time."""
        for leaving in [one for one in self._leaving if one.trial.around is around]:
            while leaving.trial.running and time.monotonic() < leaving.deadline:
                time.sleep(0.005)
            self._end(leaving)

    def _end(self, leaving: _Leaving) -> None:
        self._leaving.remove(leaving)
        leaving.trial.kill()
        if leaving.remove:
            leaving.trial.remove()
