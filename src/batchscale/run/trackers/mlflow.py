"""Mirror a run to MLflow: an experiment per records folder, a run per trial. The target is a tracking URI."""

import time
from collections.abc import Mapping
from typing import Any

from batchscale.run.trackers.tracker import TrackedTrial, Tracker

TRIAL_TAG = "batchscale.trial"
_ENDS = {"COMPLETE": "FINISHED", "INCOMPLETE": "FAILED", "INFEASIBLE": "FINISHED"}


class MlflowTracker(Tracker):
    """The target is a tracking URI: ``mlflow:sqlite:///mlflow.db``, ``mlflow:http://server:5000``."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient(tracking_uri=target)
        self._metric, self._param, self._tag = entities.Metric, entities.Param, entities.RunTag
        self._experiments: dict[str, str] = {}
        self._runs: dict[str, str] = {}

    def on_measurement(self, trial: TrackedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the metrics of one step."""
        stamp = int(time.time() * 1000)
        metrics = [self._metric(name, value, stamp, step) for name, value in values.items()]
        self._client.log_batch(self._run_id(trial), metrics=metrics)

    def on_trial_end(self, trial: TrackedTrial, status: str, steps: int) -> None:
        """End the run; a trial that diverged is finished, and its tag says so."""
        run_id = self._run_id(trial)
        tags = [self._tag("batchscale.status", status), self._tag("batchscale.steps", str(steps))]
        self._client.log_batch(run_id, tags=tags)
        self._client.set_terminated(run_id, _ENDS.get(status, "FINISHED"))
        self._runs.pop(trial.name, None)

    def _run_id(self, trial: TrackedTrial) -> str:
        """Return the run of a trial, found by its tag if an earlier command made it."""
        if trial.name not in self._runs:
            experiment = self._experiment_id(trial.run)
            matches = self._client.search_runs([experiment], f"tags.`{TRIAL_TAG}` = '{trial.name}'", max_results=1)
            self._runs[trial.name] = matches[0].info.run_id if matches else self._create_run(experiment, trial)
        return self._runs[trial.name]

    def _create_run(self, experiment: str, trial: TrackedTrial) -> str:
        run = self._client.create_run(experiment, run_name=trial.name, tags={TRIAL_TAG: trial.name})
        params = [self._param(name, str(value)) for name, value in trial.config.items()]
        self._client.log_batch(run.info.run_id, params=params)
        return str(run.info.run_id)

    def _experiment_id(self, name: str) -> str:
        if name not in self._experiments:
            experiment = self._client.get_experiment_by_name(name)
            self._experiments[name] = experiment.experiment_id if experiment else self._client.create_experiment(name)
        return self._experiments[name]
