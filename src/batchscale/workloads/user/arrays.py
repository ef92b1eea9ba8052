"""The arrays of a user's split: what they must be, and the types that devices compute with. No jax here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import SpecError, one_line

_NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}


def narrow(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in at most 32 bits each."""
    return values.astype(_NARROW.get(values.dtype.name, values.dtype), copy=False)


def check_arrays(where: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raises SpecError unless there are inputs and labels, numbers, with a row for each example."""
    missing = {"inputs", "labels"} - set(arrays)
    if missing:
        raise SpecError(f"{where}: arrays 'inputs' and 'labels' must be there. Found {one_line(sorted(arrays))}.")
    lengths = {key: len(values) if values.ndim else 0 for key, values in arrays.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise SpecError(f"{where}: every array has one row per example, and at least one. Found lengths {lengths}.")
    for key, values in arrays.items():
        if values.dtype.kind not in "fiub":
            raise SpecError(f"{where}: '{key}' must be numbers. Found dtype {values.dtype}.")
