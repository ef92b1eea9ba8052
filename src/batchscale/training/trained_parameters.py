"""The parameters that ``batchscale train`` left behind: read from the last checkpoint of a trial, without an engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from batchscale.errors import RunError, one_line


@dataclass(frozen=True)
class TrainedParameters:
    """The parameters of a trial as a tree of arrays, and how far it was trained."""

    trial_id: int
    step: int
    parameters: dict[str, Any]


def read_trained(checkpoints: Path, trial_id: int | None = None) -> TrainedParameters:
    """The newest parameters of a trial, by default the last one that was trained.

    Raises:
        RunError: There is no checkpoint, or none that can be read.
    """
    folders = _numbered(checkpoints)
    if trial_id is None and folders:
        trial_id = max(folders)
    steps = _numbered(checkpoints / str(trial_id)) if trial_id is not None else []
    for step in sorted(steps, reverse=True):
        folder = checkpoints / str(trial_id) / str(step) / "state"
        try:
            state = ocp.PyTreeCheckpointer().restore(folder.resolve(), restore_args=None)
            return TrainedParameters(int(trial_id or 0), step, _as_arrays(state["params"]))
        except Exception:  # noqa: BLE001, S112 - Orbax raises many kinds for a damaged folder; the one before may do
            continue
    raise RunError(
        f"{one_line(checkpoints, 300)} must hold a checkpoint of a trial. Found trials {folders or 'none'} with steps "
        f"{steps or 'none'}; train one with `batchscale train … --out`."
    )


def _numbered(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return [int(child.name) for child in folder.iterdir() if child.name.isdigit() and child.is_dir()]


def _as_arrays(tree: Any) -> Any:
    return {str(key): _as_arrays(value) for key, value in tree.items()} if isinstance(tree, dict) else np.asarray(tree)
