"""Mirror a run to Weights & Biases in offline mode: the target is a project, a trial one of its runs."""

from collections.abc import Mapping
from typing import Any

from batchscale.run.trackers.tracker import TrackedTrial, Tracker

STEP = "trainer/global_step"
MAX_OPEN = 64
"""Runs that are open at once; the one that was silent longest is closed for a new one."""


class WandbTracker(Tracker):
    """The target is a project: ``wandb:mnist``. Send the runs with ``wandb sync`` when you like.

    A trial that a later command continues becomes a further run of the same group and name: offline runs are never
    reopened.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        import wandb

        self._wandb: Any = wandb
        self._runs: dict[str, Any] = {}

    def on_measurement(self, trial: TrackedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the metrics of one step, with the step as a metric: W&B's own counts calls."""
        self._run(trial).log({**values, STEP: step})

    def on_trial_end(self, trial: TrackedTrial, status: str, steps: int) -> None:
        """End the run with the status in its summary."""
        run = self._run(trial)
        run.summary["batchscale/status"] = status
        run.summary["batchscale/steps"] = steps
        self._runs.pop(trial.name).finish(exit_code=int(status == "INCOMPLETE"))

    def close(self) -> None:
        """End the runs of trials that are not over."""
        while self._runs:
            self._runs.popitem()[1].finish()

    def _run(self, trial: TrackedTrial) -> Any:
        if trial.name not in self._runs:
            while len(self._runs) >= MAX_OPEN:
                self._runs.pop(next(iter(self._runs))).finish()
            self._runs[trial.name] = self._wandb.init(
                project=self.target,
                name=trial.name,
                group=trial.run,
                config=dict(trial.config),
                mode="offline",
                reinit="create_new",
                settings=self._wandb.Settings(silent=True, console="off", x_disable_stats=True),
            )
        run = self._runs.pop(trial.name)
        self._runs[trial.name] = run  # the newest at the end
        return run
