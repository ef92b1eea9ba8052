"""The user's own data as a data set: arrays, batches, or an object that reads examples; checked before compilation."""

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, SpecError, one_line
from batchscale.workloads.tasks import Task
from batchscale.workloads.user.registration import UserWorkload
from batchscale.workloads.workload import ArraySplit, Dataset, HostBatch, IndexedSplit, SampledSplit, Split

_NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}
_SAMPLE = 4
_Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""The shape and type of one example, by array."""


@final
@dataclass(frozen=True)
class StreamSplit(IndexedSplit):
    """Examples that a function of the user's reads; ``layout`` is that of its first example."""

    where: str
    count: int
    function: Callable[..., Any]
    takes_seeds: bool
    layout: _Layout

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return self.count

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:
        """Return the arrays of the user's function for these indices, checked against its first example.

        Raises:
            DataError: They have other names, shapes or types.
        """
        arrays = {
            name: self._cast(name, values)
            for name, values in _call(self.function, indices, (seeds,) if self.takes_seeds else ()).items()
        }
        layout = _describe(arrays)
        if layout != self.layout or any(len(values) != len(indices) for values in arrays.values()):
            rows = sorted({len(values) for values in arrays.values()})
            raise DataError(
                f"{self.where}: read(indices) must return a row for each of {len(indices)} indices, like the first: "
                f"{_layout_text(self.layout)}. Found {_layout_text(layout)}, rows {rows}."
            )
        return arrays

    def _cast(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values in the type of the first example, if whole numbers or fractions allow it."""
        dtype = self.layout[name][1] if name in self.layout else values.dtype
        return values.astype(dtype, copy=False) if np.can_cast(values.dtype, dtype, "same_kind") else values


def make_stream(where: str, source: Any) -> StreamSplit:
    """Make the split of an object with ``read`` and ``num_examples`` or a length; one example is read for its layout.

    Raises:
        SpecError: It has no number of examples, or does not return arrays.
    """
    count = _count_examples(where, source)
    takes_seeds = _takes_seeds(source.read)
    try:
        arrays = _call(source.read, np.arange(1), (None,) if takes_seeds else ())
    except Exception as error:  # the user's own code may raise anything; it is reported as theirs
        raise SpecError(f"{where}: read fails on index 0: {type(error).__name__}: {one_line(error, 300)}") from error
    check_arrays(where, arrays)
    if any(len(values) != 1 for values in arrays.values()):
        raise SpecError(f"{where}: read(indices) must return one row for each index. Found several for one index.")
    return StreamSplit(where, count, source.read, takes_seeds, _describe(arrays))


def _count_examples(where: str, source: Any) -> int:
    try:
        count = operator.index(source.num_examples if hasattr(source, "num_examples") else len(source))
    except TypeError:
        raise SpecError(
            f"{where}: an object with read(indices) must have num_examples or a length. "
            "Found neither, or no whole number."
        ) from None
    if count < 1:
        raise SpecError(f"{where}: a split must have at least one example. Found {count}.")
    return count


def _takes_seeds(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin has no signature
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters) >= 2


def _call(function: Callable[..., Any], indices: NDArray[np.int64], more: tuple[Any, ...]) -> dict[str, NDArray[Any]]:
    result = function(indices, *more)
    if not isinstance(result, Mapping):
        raise DataError(f"read(indices) must return arrays by name. Found {type(result).__name__}.")
    return {str(name): narrow(np.asarray(values)) for name, values in result.items()}


def _describe(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (values.shape[1:], values.dtype) for name, values in arrays.items()}


def _layout_text(layout: _Layout) -> str:
    return ", ".join(f"{name} {dtype} of shape {shape}" for name, (shape, dtype) in layout.items())


def narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Return the same numbers in at most 32 bits each, the types that devices compute with."""
    return values.astype(_NARROW.get(values.dtype.name, values.dtype), copy=False)


def check_arrays(where: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise SpecError unless there are inputs and labels, all numbers, with a row for each example."""
    missing = {"inputs", "labels"} - set(arrays)
    if missing:
        raise SpecError(f"{where}: there must be arrays 'inputs' and 'labels'. Found {one_line(sorted(arrays))}.")
    lengths = {key: len(values) if values.ndim else 0 for key, values in arrays.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise SpecError(f"{where}: every array must have a row per example, at least one. Found lengths {lengths}.")
    for key, values in arrays.items():
        if values.dtype.kind not in "fiub":
            raise SpecError(f"{where}: '{key}' must be numbers. Found dtype {values.dtype}.")


def make_dataset(user: UserWorkload) -> Dataset:
    """Make the data set of a registration that brings its own data."""
    assert user.data is not None
    splits = {name: _make_split(user.name, name, split) for name, split in user.data.items()}
    prepare = user.prepare or dict
    examples = {name: sample_batch(split) for name, split in splits.items()}
    try:
        shapes = {name: jax.eval_shape(prepare, batch) for name, batch in examples.items()}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SpecError(
            f"Workload {user.name}: prepare fails on a batch of its data: {one_line(error, 300)}"
        ) from error
    _check_alike(user.name, shapes)
    train = shapes["train"]
    shape, dtype = train["inputs"].shape[1:], train["inputs"].dtype
    num_outputs = user.num_outputs or _num_outputs(user, splits["train"])
    is_packed = user.task is Task.LANGUAGE and len(shape) == 1 and "mask" not in train  # no padding
    return Dataset(user.dataset, splits, prepare, shape, dtype, num_outputs, shape[0] if is_packed else None)


def sample_batch(split: Split, count: int = _SAMPLE) -> Mapping[str, Any]:
    """Return a few stored examples of a split, for checks."""
    if isinstance(split, SampledSplit):
        return split.sample(jax.random.key(0), count)
    indices = np.arange(min(count, split.num_examples))
    if isinstance(split, IndexedSplit):
        return split.read(indices, None)
    return {name: values[indices] for name, values in split.arrays.items()}


def _make_split(workload: str, name: str, source: Any) -> Split:
    if isinstance(source, ArraySplit | IndexedSplit | SampledSplit):
        return source
    where = f"Workload {workload}, split {name}"
    if callable(getattr(source, "read", None)) and not isinstance(source, Mapping):
        return make_stream(where, source)
    if isinstance(source, Mapping):
        arrays = {str(key): np.asarray(values) for key, values in source.items()}
    else:
        raise SpecError(
            f"{where}: a split must be arrays by name, an iterable of batches, or an object with read(indices). "
            f"Found {type(source).__name__}."
        )
    check_arrays(where, arrays)
    return ArraySplit({key: narrow(values) for key, values in arrays.items()})


def _check_alike(workload: str, shapes: Mapping[str, Any]) -> None:
    """Raise SpecError unless all splits hold the same kind of example; only sentences may differ in length."""
    train = shapes["train"]
    for name, batch in shapes.items():
        if set(batch) != set(train):
            raise SpecError(f"Workload {workload}: split {name} has {sorted(batch)}, train has {sorted(train)}.")
        for key in batch:
            actual, expected = batch[key], train[key]
            same_rank = len(actual.shape) == len(expected.shape)
            may_differ = (actual.dtype == jnp.int32 and len(actual.shape) == 2) or key == "mask"
            same_shape = same_rank and (may_differ or actual.shape[1:] == expected.shape[1:])
            if actual.dtype != expected.dtype or not same_shape:
                raise SpecError(
                    f"Workload {workload}: '{key}' of split {name} must be like that of train: {expected.dtype} of "
                    f"shape {expected.shape[1:]} per example. Found {actual.dtype} of shape {actual.shape[1:]}."
                )


def _num_outputs(user: UserWorkload, train: Split) -> int:
    if user.task in (Task.MULTILABEL, Task.REGRESSION):  # a column of labels for each output
        return int(np.shape(sample_batch(train)["labels"])[-1])
    if not isinstance(train, ArraySplit):
        raise SpecError(f"Workload {user.name}: give num_outputs; only data in memory can tell it.")
    labels = train.arrays["labels"]
    return int(labels.max()) + 1 if labels.dtype.kind in "iu" else 1
