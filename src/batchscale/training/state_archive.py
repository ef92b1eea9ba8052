"""The state of a trial as one numpy archive (npz): its arrays, its measurements and whose they are.

Arrays are numbered in the order of the state's tree. One more array, ``facts``, holds JSON: the trial's identity, its
measurements, and the names of its parameters, so that these can be read without the model. Every array has a checksum:
a damaged archive is never taken for a state.
"""

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

import jax
import numpy as np

from batchscale.study.trial import Row
from batchscale.training.state import TrialState

MAX_BUFFERED_BYTES = 2**20
"""A smaller archive is written in one piece: its format goes back to the start of every array."""

_FACTS = "facts"


@dataclass(frozen=True)
class SavedTrial:
    """A trial's state on the host with its measurements by step; ``identity`` names the trial, seed and all."""

    state: TrialState
    rows: Mapping[int, Mapping[str, float]]
    identity: str


def write_archive(file: IO[bytes], saved: SavedTrial) -> None:
    """Write a trial to an open file."""
    paths = [path for path, _ in jax.tree.leaves_with_path(saved.state.params)]
    facts = {
        "identity": saved.identity,
        "step": int(saved.state.step),
        "rows": [_row_to_json(step, values) for step, values in saved.rows.items()],
        "parameters": [[jax.tree_util.keystr((key,), simple=True) for key in path] for path in paths],
    }
    arrays: dict[str, Any] = {_FACTS: np.frombuffer(json.dumps(facts).encode(), np.uint8)}
    arrays |= {str(number): np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(saved.state))}
    if sum(array.nbytes for array in arrays.values()) > MAX_BUFFERED_BYTES:
        np.savez(file, **arrays)
        return
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    file.write(buffer.getbuffer())


def read_archive(file: IO[bytes], template: TrialState, identity: str) -> SavedTrial | None:
    """Return the trial of an archive; None if it is damaged, of another trial, or not shaped like ``template``."""
    expected, structure = jax.tree.flatten(template)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            facts = json.loads(arrays[_FACTS].tobytes())
            if facts["identity"] != identity:
                return None
            rows = dict(_row_from_json(row) for row in facts["rows"])
            leaves = [arrays[str(number)] for number in range(len(expected))]
    except Exception:  # noqa: BLE001 - a damaged archive raises many kinds of errors
        return None
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(np.shape(leaf), _dtype(leaf)) for leaf in expected]:
        return None
    state: TrialState = jax.tree.unflatten(structure, leaves)
    is_sound = bool(state.branch) or max(rows, default=0) <= int(state.step)  # a trunk is behind its last branch
    return SavedTrial(state, rows, identity) if is_sound else None


def read_parameters(file: IO[bytes]) -> tuple[int, dict[str, Any]] | None:
    """Return the step of an archive and its parameters as nested dictionaries; None if it is damaged."""
    tree: dict[str, Any] = {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            facts = json.loads(arrays[_FACTS].tobytes())
            for number, path in enumerate(facts["parameters"]):  # they come first in a state
                *folders, name = path
                branch = tree
                for folder in folders:
                    branch = branch.setdefault(folder, {})
                branch[name] = arrays[str(number)]
            return int(facts["step"]), tree
    except Exception:  # noqa: BLE001 - a damaged archive raises many kinds of errors
        return None


def pack_state(saved: SavedTrial) -> bytes:
    """Return a trial as the bytes of an archive."""
    buffer = io.BytesIO()
    write_archive(buffer, saved)
    return buffer.getvalue()


def unpack_state(data: bytes, template: TrialState, identity: str) -> SavedTrial | None:
    """Return the trial that `pack_state` packed; None as for `read_archive`."""
    return read_archive(io.BytesIO(data), template, identity)


def _dtype(leaf: Any) -> np.dtype:
    return np.asarray(leaf).dtype


def _row_to_json(step: int, values: Mapping[str, float]) -> list[Any]:
    """Return a row as JSON, which has no NaN and no infinity: those are stored by their names."""
    return [step, {name: value if math.isfinite(value) else str(value) for name, value in values.items()}]


def _row_from_json(row: list[Any]) -> Row:
    step, values = row
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"a step must be a whole number. Found {step!r}.")
    return step, {name: float(value) for name, value in values.items()}
