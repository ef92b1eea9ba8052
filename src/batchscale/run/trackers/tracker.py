"""The interface of trackers, and how ``--track NAME:TARGET`` names one."""

import importlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.plugins import find_plugins

TRACKERS: Mapping[str, str] = {
    "mlflow": "batchscale.run.trackers.mlflow:MlflowTracker",
    "tensorboard": "batchscale.run.trackers.tensorboard:TensorBoardTracker",
    "trackio": "batchscale.run.trackers.trackio:TrackioTracker",
    "wandb": "batchscale.run.trackers.wandb:WandbTracker",
}


@dataclass(frozen=True)
class TrackedTrial:
    """The trial that a measurement belongs to. ``run`` is the folder of the records, as one name of the whole run."""

    run: str
    workload: str
    batch_size: int
    trial_id: int
    parameters: Mapping[str, float]
    seed: int | None = None
    goal: str | None = None

    @property
    def name(self) -> str:
        """A name that no other trial of the run has."""
        return f"{self.workload}/{self.batch_size}/{self.trial_id}"

    @property
    def config(self) -> dict[str, float | int | str]:
        """Everything that was chosen before the trial began, as most tools store it."""
        extra = {"seed": self.seed, "goal": self.goal}
        dataset, model, optimizer = self.workload.rsplit("/", 2)
        return {
            **self.parameters,
            "batch_size": self.batch_size,
            "dataset": dataset,
            "model": model,
            "optimizer": optimizer,
            "trial_id": self.trial_id,
            **{name: value for name, value in extra.items() if value is not None},
        }


class Tracker(ABC):
    """A tool that trials are mirrored to. Made with the target, the text behind the name in ``--track NAME:TARGET``.

    All calls come from one thread of its own, those of a trial in growing steps and each step once. A tracker may
    raise and may block: the run does not notice, except for one notice. A call that raised is repeated later.
    """

    def __init__(self, target: str) -> None:
        self.target = target

    @abstractmethod
    def on_measurement(self, trial: TrackedTrial, step: int, values: Mapping[str, float]) -> None:
        """Send one measurement; values may be NaN or infinite."""

    @abstractmethod
    def on_trial_end(self, trial: TrackedTrial, status: str, steps: int) -> None:
        """Send the end of a trial: COMPLETE, INCOMPLETE or INFEASIBLE. It may train on in a later run."""

    def close(self) -> None:  # noqa: B027  (nothing to do for most)
        """Send what is still held back; called once at the end of the run."""


@dataclass(frozen=True)
class TrackerName:
    """A parsed ``--track``: the text as given, the class as ``module:Class``, and the target."""

    text: str
    reference: str
    target: str

    @property
    def name(self) -> str:
        """The tracker's short name, for messages and files."""
        return self.text.partition(":")[0]

    def make(self) -> Tracker:
        """Import the class and make the tracker. Its code may raise anything."""
        module, _, attribute = self.reference.partition(":")
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))  # a script of the user lies there; behind all others
        tracker = getattr(importlib.import_module(module), attribute)(self.target)
        if not hasattr(tracker, "on_measurement") or not hasattr(tracker, "on_trial_end"):
            raise TypeError(f"{self.reference} has no on_measurement and on_trial_end")
        return tracker  # type: ignore[no-any-return]


def parse_tracker(text: str) -> TrackerName:
    """Parse ``NAME:TARGET`` of a built-in tracker or a plug-in's, or ``module:Class`` and ``module:Class:TARGET``.

    Raises:
        SpecError: it is none of them.

    >>> parse_tracker("tensorboard:logs").target
    'logs'
    >>> parse_tracker("my.module:Mine:there").reference
    'my.module:Mine'
    """
    name, _, target = text.partition(":")
    references = {**TRACKERS, **_plugin_trackers(name)}
    if name in references:
        if not target.strip():
            raise SpecError(
                f"A tracker (--track, or run.track of the file) must be NAME:TARGET, such as tensorboard:logs. Found "
                f"'{one_line(text)}' without a target."
            )
        return TrackerName(text, references[name], target)
    class_name, _, rest = target.partition(":")
    if class_name.isidentifier() and all(part.isidentifier() for part in name.split(".")) and class_name[:1].isupper():
        return TrackerName(text, f"{name}:{class_name}", rest)
    raise SpecError(
        "A tracker (--track, or run.track of the file) must be NAME:TARGET, or module:Class of your own. Found "
        f"'{one_line(text)}'; "
        f"{suggest_names(name, references)}"
    )


def _plugin_trackers(name: str) -> dict[str, str]:
    if name in TRACKERS:
        return {}
    return {key: value for plugin in find_plugins() for key, value in plugin.read("TRACKERS", {}).items()}
