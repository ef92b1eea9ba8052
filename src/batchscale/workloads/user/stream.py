"""The user's own data as a stream: read by index when it is needed, so that it need not fit in memory."""

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, SpecError, one_line
from batchscale.workloads.user.arrays import check_arrays, narrow
from batchscale.workloads.workload import HostBatch, IndexedSplit

_Like = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


@final
@dataclass(frozen=True)
class StreamSplit(IndexedSplit):
    """Examples that a function of the user's reads; ``like`` has the shape and type of one example by array."""

    where: str
    count: int
    function: Callable[..., Any]
    takes_seeds: bool
    like: _Like

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return self.count

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:
        """What the user's function gives for these indices, checked to be like its first examples.

        Raises:
            DataError: it gives something else.
        """
        arrays = {
            name: self._like_the_first(name, values)
            for name, values in _call(self.function, indices, (seeds,) if self.takes_seeds else ()).items()
        }
        found = _describe(arrays)
        if found != self.like or any(len(values) != len(indices) for values in arrays.values()):
            raise DataError(
                f"{self.where}: read(indices) gives a row for each of {len(indices)} indices, each like the first: "
                f"{_words(self.like)}. Found {_words(found)}, rows {sorted({len(v) for v in arrays.values()})}."
            )
        return arrays

    def _like_the_first(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Whole numbers where the first example had fractions are fractions too."""
        dtype = self.like[name][1] if name in self.like else values.dtype
        return values.astype(dtype, copy=False) if np.can_cast(values.dtype, dtype, "same_kind") else values


def make_stream(where: str, given: Any) -> StreamSplit:
    """The split of an object with ``read`` and ``num_examples`` or a length; reads one example to see what it gives.

    Raises:
        SpecError: it does not say how many examples it has, or does not give arrays.
    """
    count = _count(where, given)
    takes_seeds = _takes_seeds(given.read)
    try:
        arrays = _call(given.read, np.arange(1), (None,) if takes_seeds else ())
    except Exception as error:  # the user's own code may raise anything; it is reported as theirs
        raise SpecError(f"{where}: read fails on index 0: {type(error).__name__}: {one_line(error, 300)}") from error
    check_arrays(where, arrays)
    if any(len(values) != 1 for values in arrays.values()):
        raise SpecError(f"{where}: read(indices) gives a row for each index. Found several for one index.")
    return StreamSplit(where, count, given.read, takes_seeds, _describe(arrays))


def _count(where: str, given: Any) -> int:
    try:
        found = given.num_examples if hasattr(given, "num_examples") else len(given)
        count = operator.index(found)
    except TypeError:
        raise SpecError(
            f"{where}: an object with read(indices) says how many examples it has, as num_examples or by its length. "
            "Found neither, or no whole number."
        ) from None
    if count < 1:
        raise SpecError(f"{where}: a split has at least one example. Found {count}.")
    return count


def _takes_seeds(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin does not say
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters) >= 2


def _call(function: Callable[..., Any], indices: NDArray[np.int64], more: tuple[Any, ...]) -> dict[str, NDArray[Any]]:
    given = function(indices, *more)
    if not isinstance(given, Mapping):
        raise DataError(f"read(indices) gives arrays by name. Found {type(given).__name__}.")
    return {str(name): narrow(np.asarray(values)) for name, values in given.items()}


def _describe(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (values.shape[1:], values.dtype) for name, values in arrays.items()}


def _words(like: _Like) -> str:
    return ", ".join(f"{name} {dtype} of shape {shape}" for name, (shape, dtype) in like.items())
