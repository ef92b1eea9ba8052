"""The shelf of a study: the last states of its ended trials, in case they are asked to train longer.

One file per trial, ``DIR/TRIAL_ID.npz``: for small states much cheaper than a checkpoint (decision 0072). Nothing
depends on it: a file that is lost, torn or another trial's is passed over, and the trial is computed from its seed.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from batchscale.records.durable import replacing_atomically
from batchscale.training.checkpoints import SavedTrial, check_saved, row_to_json
from batchscale.training.state import TrialState

MIN_FREE_BYTES = 2**30
"""No state is put on the shelf of a disk that has less room than this."""

_FACTS = "facts"


class Shelf:
    """The ended trials of one study in a local folder, together below a size limit."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def save(self, trial_id: int, saved: SavedTrial) -> bool:
        """Writes the state in place of an earlier one; False if there is no room for it."""
        arrays = to_arrays(saved)
        path = self._path(trial_id)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._has_room(path, sum(array.nbytes for array in arrays.values())):
                path.unlink(missing_ok=True)
                return False
            with replacing_atomically(path) as file:
                np.savez(file, **arrays)
        except OSError:  # whatever it is, it is no reason to stop: the state is only good to have
            self.forget(trial_id)
            return False
        return True

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """The trial's state; None if it is not there, not readable or belongs to another trial."""
        try:
            with self._path(trial_id).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                return from_arrays(file, template, identity)
        except Exception:  # noqa: BLE001 - a damaged zip file raises many kinds; all mean: compute it again
            return None

    def forget(self, trial_id: int) -> None:
        """Takes the trial off the shelf."""
        for path in (self._path(trial_id), self._path(trial_id).with_suffix(".writing")):
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue

    def _path(self, trial_id: int) -> Path:
        return self._folder / f"{trial_id}.npz"

    def _has_room(self, path: Path, num_bytes: int) -> bool:
        with os.scandir(self._folder) as entries:
            taken = sum(e.stat().st_size for e in entries if e.name.endswith(".npz") and e.name != path.name)
        return taken + num_bytes <= self._max_bytes and shutil.disk_usage(self._folder).free >= MIN_FREE_BYTES


def to_arrays(saved: SavedTrial) -> dict[str, Any]:
    """A saved trial as numbered arrays, with its facts as one more."""
    facts = {"identity": saved.identity, "rows": [row_to_json(step, values) for step, values in saved.rows.items()]}
    arrays: dict[str, Any] = {_FACTS: np.frombuffer(json.dumps(facts).encode(), np.uint8)}
    return arrays | {str(place): np.asarray(leaf) for place, leaf in enumerate(jax.tree.leaves(saved.state))}


def from_arrays(arrays: Mapping[str, Any], template: TrialState, identity: str) -> SavedTrial | None:
    """The trial that `to_arrays` took apart; None if it is another one. Other arrays raise many kinds of errors."""
    wanted, structure = jax.tree.flatten(template)
    facts = json.loads(arrays[_FACTS].tobytes())
    leaves = [arrays[str(place)] for place in range(len(wanted))]
    if [_kind(leaf) for leaf in leaves] != [_kind(leaf) for leaf in wanted]:
        return None
    return check_saved(jax.tree.unflatten(structure, leaves), facts, identity)


def _kind(leaf: np.ndarray) -> tuple[tuple[int, ...], np.dtype]:
    return np.shape(leaf), np.asarray(leaf).dtype
