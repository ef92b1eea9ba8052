"""The user's own arrays or batches as a data set, with what is wrong with them said before anything is compiled."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.errors import SpecError, one_line
from batchscale.workloads.tasks import Task
from batchscale.workloads.user.arrays import check_arrays, narrow
from batchscale.workloads.user.registration import UserWorkload
from batchscale.workloads.user.stream import make_stream
from batchscale.workloads.workload import ArraySplit, Dataset, IndexedSplit, SampledSplit, Split

_SAMPLE = 4


def make_dataset(user: UserWorkload) -> Dataset:
    """The data set of a registration that brings its own data."""
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
    return Dataset(user.dataset, splits, prepare, shape, dtype, user.num_outputs or _num_outputs(user, splits["train"]))


def sample_batch(split: Split, count: int = _SAMPLE) -> Mapping[str, Any]:
    """A few stored examples of a split, for checks."""
    if isinstance(split, SampledSplit):
        return split.sample(jax.random.key(0), count)
    chosen = np.arange(min(count, split.num_examples))
    if isinstance(split, IndexedSplit):
        return split.read(chosen, None)
    return {name: values[chosen] for name, values in split.arrays.items()}


def _make_split(workload: str, name: str, given: Any) -> Split:
    if isinstance(given, ArraySplit | IndexedSplit | SampledSplit):
        return given
    where = f"Workload {workload}, split {name}"
    if callable(getattr(given, "read", None)) and not isinstance(given, Mapping):
        return make_stream(where, given)
    if isinstance(given, Mapping):
        arrays = {str(key): np.asarray(values) for key, values in given.items()}
    else:
        raise SpecError(
            f"{where}: a split is arrays by name, an iterable of batches, or an object with read(indices). "
            f"Found {type(given).__name__}."
        )
    check_arrays(where, arrays)
    return ArraySplit({key: narrow(values) for key, values in arrays.items()})


def _check_alike(workload: str, shapes: Mapping[str, Any]) -> None:
    """All splits hold the same kind of example; only sentences may differ in length."""
    train = shapes["train"]
    for name, batch in shapes.items():
        if set(batch) != set(train):
            raise SpecError(f"Workload {workload}: split {name} has {sorted(batch)}, train has {sorted(train)}.")
        for key in batch:
            found, expected = batch[key], train[key]
            same_rank = len(found.shape) == len(expected.shape)
            words = (found.dtype == jnp.int32 and len(found.shape) == 2) or key == "mask"
            if found.dtype != expected.dtype or not same_rank or (not words and found.shape[1:] != expected.shape[1:]):
                raise SpecError(
                    f"Workload {workload}: '{key}' of split {name} must be like that of train: {expected.dtype} of "
                    f"shape {expected.shape[1:]} per example. Found {found.dtype} of shape {found.shape[1:]}."
                )


def _num_outputs(user: UserWorkload, train: Split) -> int:
    if user.task in (Task.MULTILABEL, Task.REGRESSION):  # a column of labels for each output
        return int(np.shape(sample_batch(train)["labels"])[-1])
    if not isinstance(train, ArraySplit):
        raise SpecError(f"Workload {user.name}: give num_outputs; data that is not in memory does not say.")
    labels = train.arrays["labels"]
    return int(labels.max()) + 1 if labels.dtype.kind in "iu" else 1
