"""Which workers were given which trials: they alone hold states of them, and are told to let go.

Telling all workers of every trial that ends would be a thousand messages per trial on a thousand workers.
"""

from collections import defaultdict
from collections.abc import Container, Iterable

from batchscale.runners.runner import Job


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
