"""Mirror a run to trackio: the target is a project, a trial one of its runs."""

from collections.abc import Mapping
from typing import Any

from batchscale.run.trackers.tracker import TrackedTrial, Tracker


class TrackioTracker(Tracker):
    """The target is a project: ``trackio:mnist``, to be shown with ``trackio show --project mnist``."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        # trackio.init has one current run and prints to standard output: many trials need the level below it
        from trackio.sqlite_storage import SQLiteStorage

        self._storage: Any = SQLiteStorage
        self._described: set[str] = set()

    def on_measurement(self, trial: TrackedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the metrics of one step."""
        self._log(trial, step, dict(values))

    def on_trial_end(self, trial: TrackedTrial, status: str, steps: int) -> None:
        """Log the end as a row of its own: trackio has no status of runs."""
        self._log(trial, steps, {"batchscale/complete": float(status == "COMPLETE")})
        self._described.discard(trial.name)

    def _log(self, trial: TrackedTrial, step: int, values: dict[str, float]) -> None:
        name = f"{trial.run}/{trial.name}"
        config = None if trial.name in self._described else dict(trial.config)
        self._storage.bulk_log(self.target, name, [values], steps=[step], config=config, run_id=name)
        self._described.add(trial.name)
