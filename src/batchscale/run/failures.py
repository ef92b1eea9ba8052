"""What goes wrong in a run: how often, which trials are given up for it, and when nothing can be trained at all."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from batchscale.study.failure import Failure
from batchscale.workers.runner import LossReason

GIVEN_UP_AT_MOST = 3
"""So many trials may be given up in a row, from the first one on or at the furthest step of a study."""


class Failures:
    """Failures of workers and trials, counted apart from the outcomes of trials.

    ``retries`` is how often a trial is tried again without progress in between. ``counts`` are all failures by their
    kind, ``last`` is the latest, and ``given_up`` how many trials were tried in vain.
    """

    def __init__(self, retries: int) -> None:
        self.counts: Counter[LossReason] = Counter()
        self.last = ""
        self.given_up = 0
        self._retries = retries
        self._answers = 0
        self._tries: Counter[tuple[int, int]] = Counter()  # by batch size and trial
        self._steps: dict[tuple[int, int], int] = {}  # how far each trial came that is not over
        self._furthest: dict[int, int] = defaultdict(int)  # how far any trial came, by batch size
        self._gave_up_at: dict[int, list[int]] = defaultdict(list)  # by batch size

    def count(self, loss: LossReason, failure: Failure) -> None:
        """Something failed."""
        self.counts[loss] += 1
        self.last = str(failure)

    def note_answer(self) -> None:
        """A job was answered, and nothing failed in it."""
        self._answers += 1

    def note_step(self, batch_size: int, trial_id: int, step: int) -> None:
        """A trial came this far."""
        self._steps[batch_size, trial_id] = step
        self._furthest[batch_size] = max(self._furthest[batch_size], step)

    def note_progress(self, batch_size: int, trial_id: int) -> None:
        """A trial came further than before: its tries begin anew."""
        self._tries.pop((batch_size, trial_id), None)

    def forget(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """These trials are over."""
        for trial_id in trial_ids:
            self._steps.pop((batch_size, trial_id), None)
            self._tries.pop((batch_size, trial_id), None)

    def count_try(self, batch_size: int, trial_id: int, failure: Failure) -> Failure | None:
        """A trial was tried in vain; why it is given up, if it was tried often enough."""
        key = (batch_size, trial_id)
        self._tries[key] += 1
        if self._tries[key] <= self._retries:
            return None
        self.given_up += 1
        self._gave_up_at[batch_size].append(self._steps.get(key, 0))
        return failure.preceded_by(f"Tried {self._tries[key]} times. ")

    def is_hopeless(self, batch_size: int) -> bool:
        """Whether nothing was ever trained, or no trial of the study came past the step where several gave up."""
        if not self._answers:
            return self.given_up >= GIVEN_UP_AT_MOST
        furthest = self._furthest[batch_size]
        return sum(step >= furthest for step in self._gave_up_at[batch_size]) >= GIVEN_UP_AT_MOST and furthest > 0
