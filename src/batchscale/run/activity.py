"""The current activity of each worker, as reported by it: for people and for first estimates, never for results.

Reports may be missing or late. Finished jobs are counted elsewhere, so a job's part here ends with its result.
"""

from collections.abc import Collection
from dataclasses import dataclass

from batchscale.study.trial import Activity
from batchscale.workers.runner import WorkerActivity


@dataclass
class RunningJob:
    """One worker's job in progress.

    ``since_s`` is when its present activity began. ``steps`` is a lower bound of the steps it has trained: of several
    trials that are trained together only the foremost is reported. ``trained_s`` is the time that those steps took. A
    job that is ``finished`` has sent its result: it counts no more, and is shown until the next one is reported.
    """

    doing: WorkerActivity
    since_s: float
    updated_s: float
    steps: int = 0
    trained_s: float = 0.0
    finished: bool = False


class ActivityMonitor:
    """The jobs in progress, by worker."""

    def __init__(self) -> None:
        self.jobs: dict[str, RunningJob] = {}

    def update(self, doing: WorkerActivity, now_s: float) -> None:
        """Handle a worker's report of its activity."""
        job = self.jobs.get(doing.worker_id)
        if job is None or job.finished or _key(job.doing) != _key(doing):
            self.jobs[doing.worker_id] = RunningJob(doing, now_s, now_s)
            return
        before = job.doing
        if before.activity in (Activity.TRAINING, Activity.EVALUATING):  # else the time went into compiling
            # trials of a job take turns where they are not trained together: a lower step is another trial's
            job.steps += max(0, doing.step - before.step)
            job.trained_s += now_s - job.updated_s
        if doing.activity is not before.activity:
            job.since_s = now_s
        job.doing, job.updated_s = doing, now_s

    def finish(self, worker_id: str) -> None:
        """Mark a worker's job as finished or lost."""
        job = self.jobs.get(worker_id)
        if job is not None:
            job.steps, job.trained_s, job.finished = 0, 0.0, True

    def set_workers(self, worker_ids: Collection[str]) -> None:
        """Remove workers that are not among these."""
        self.jobs = {worker_id: job for worker_id, job in self.jobs.items() if worker_id in worker_ids}

    def progress_by_study(self) -> dict[int, tuple[int, float]]:
        """Return the trial-steps of the jobs in progress, a lower bound, and their seconds, by batch size."""
        progress: dict[int, tuple[int, float]] = {}
        for job in self.jobs.values():
            if job.steps > 0:
                steps, seconds = progress.get(job.doing.batch_size, (0, 0.0))
                progress[job.doing.batch_size] = steps + job.steps, seconds + job.trained_s
        return progress


def _key(doing: WorkerActivity) -> tuple[int, tuple[int, ...]]:
    return doing.batch_size, doing.trial_ids
