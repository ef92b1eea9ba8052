"""Which workers were given which trials: they alone hold states of them, and are told to let go.

Telling all workers of every trial that ends would be a thousand messages per trial on a thousand workers.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence

from batchscale.workers.messages import Forget, Shelve
from batchscale.workers.runner import Job


class Holders:
    """What the workers of a runner were given. ``there`` are, in every question, those that have not gone."""

    def __init__(self) -> None:
        self._trials: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._studies: dict[int, set[str]] = defaultdict(set)

    def note(self, worker_id: str, job: Job) -> None:
        """A worker is given a job."""
        batch_size = job.study.batch_size
        self._studies[batch_size].add(worker_id)
        for task in job.tasks:
            self._trials[batch_size][task.trial_id].add(worker_id)

    def forget(self, batch_size: int, trial_ids: Sequence[int], there: Container[str]) -> list[tuple[str, Forget]]:
        """Who is told what when trials, or without any a whole study, are needed no more."""
        if not trial_ids:
            return [(worker, Forget(batch_size)) for worker in self.release_study(batch_size, there)]
        released = self.release(batch_size, trial_ids, there)
        return [(worker, Forget(batch_size, tuple(own))) for worker, own in released.items()]

    def shelve(self, batch_size: int, steps: Mapping[int, int], there: Container[str]) -> list[tuple[str, Shelve]]:
        """Who is told what when trials have ended at these steps: the one that holds a trial keeps its state."""
        released = self.release(batch_size, steps, there)
        return [(worker, Shelve(batch_size, {one: steps[one] for one in own})) for worker, own in released.items()]

    def release(self, batch_size: int, trial_ids: Iterable[int], there: Container[str]) -> dict[str, list[int]]:
        """Which worker is to let go of which of these trials; nobody has any of them any more.

        What an earlier run left of a trial that none was given is the business of all that know its study.
        """
        told: dict[str, list[int]] = defaultdict(list)
        known, study = self._known(batch_size, there), self._trials.get(batch_size, {})
        for trial_id in trial_ids:
            given = [worker for worker in study.pop(trial_id, ()) if worker in there]
            for worker in given or known:
                told[worker].append(trial_id)
        return told

    def release_study(self, batch_size: int, there: Container[str]) -> list[str]:
        """The workers that are to let go of a study; nobody has anything of it any more."""
        known = self._known(batch_size, there)
        self._trials.pop(batch_size, None)
        self._studies.pop(batch_size, None)
        return known

    def _known(self, batch_size: int, there: Container[str]) -> list[str]:
        return [worker for worker in sorted(self._studies.get(batch_size, ())) if worker in there]
