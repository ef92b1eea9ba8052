"""What workers do at this moment, as they tell it: for people and for first estimates, never for results.

News may be missing or late. What a worker has answered is counted elsewhere, so its part here ends with its answer.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from batchscale.study.tasks import Activity
from batchscale.workers.runner import WorkerActivity


@dataclass
class Flight:
    """One worker's job under way.

    ``since_s`` is when its present activity began. ``steps`` is how far its trials came, at the least: of several that
    are trained together only the foremost is heard of. ``trained_s`` is the time that those steps took. A job that
    ``landed`` is answered: it counts no more, and is shown until the next one is heard of.
    """

    doing: WorkerActivity
    since_s: float
    heard_s: float
    steps: int = 0
    trained_s: float = 0.0
    landed: bool = False


class Watch:
    """The jobs under way, by worker."""

    def __init__(self) -> None:
        self.flights: dict[str, Flight] = {}

    def hear(self, doing: WorkerActivity, now_s: float) -> None:
        """Take in what a worker says that it does."""
        flight = self.flights.get(doing.worker_id)
        if flight is None or flight.landed or _job(flight.doing) != _job(doing):
            self.flights[doing.worker_id] = Flight(doing, now_s, now_s)
            return
        before = flight.doing
        if before.activity in (Activity.TRAINING, Activity.EVALUATING):  # else the time went into compiling
            # trials of a job take turns where they are not trained together: a lower step is another trial's
            flight.steps += max(0, doing.step - before.step)
            flight.trained_s += now_s - flight.heard_s
        if doing.activity is not before.activity:
            flight.since_s = now_s
        flight.doing, flight.heard_s = doing, now_s

    def land(self, worker_id: str) -> None:
        """A worker's job is answered or lost."""
        flight = self.flights.get(worker_id)
        if flight is not None:
            flight.steps, flight.trained_s, flight.landed = 0, 0.0, True

    def keep_workers(self, there: Collection[str]) -> None:
        """Forget workers that are not there any more."""
        self.flights = {worker: flight for worker, flight in self.flights.items() if worker in there}

    def by_study(self) -> "dict[int, Watch]":
        """The jobs under way of each study, by its batch size."""
        found: dict[int, Watch] = defaultdict(Watch)
        for worker_id, flight in self.flights.items():
            found[flight.doing.batch_size].flights[worker_id] = flight
        return dict(found)

    def steps(self, batch_size: int) -> int:
        """The trial-steps of a study's jobs under way, at the least."""
        return sum(flight.steps for flight in self._of(batch_size))

    def step_s(self, batch_size: int) -> float | None:
        """The seconds of a trial-step of a study's jobs under way, at the most; None while that is unknown."""
        flights = [flight for flight in self._of(batch_size) if flight.steps > 0]
        steps = sum(flight.steps for flight in flights)
        return sum(flight.trained_s for flight in flights) / steps if steps else None

    def _of(self, batch_size: int) -> list[Flight]:
        return [flight for flight in self.flights.values() if flight.doing.batch_size == batch_size]


def _job(doing: WorkerActivity) -> tuple[int, tuple[int, ...]]:
    return doing.batch_size, doing.trial_ids
