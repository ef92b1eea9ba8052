"""Where data lives: training arrays put on the device once, and the fixed examples that evaluation uses.

Which examples stand for a split when only some are evaluated is the same for every trial of every study.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.errors import SpecError
from batchscale.spec.durations import ALL, EvaluationPlan
from batchscale.training.devices import Devices
from batchscale.workloads.workload import ArraySplit, Batch, Dataset, HostBatch, IndexedSplit, SampledSplit, Split

PROBE_EXAMPLES = 256
SAMPLED_EXAMPLES = 1000  # what "all" means for data without end
_SPLIT_SEEDS = {"train": 1, "val": 2, "test": 3}


class StoredRows(IndexedSplit):
    """A split in memory, read on the host like one that is not: where its copies would fill the devices."""

    def __init__(self, split: ArraySplit) -> None:
        self._split = split

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return self._split.num_examples

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:
        """The examples as they are stored."""
        del seeds
        return {name: values[indices] for name, values in self._split.arrays.items()}


def find_fed_split(dataset: Dataset, devices: Devices, device_bytes: int) -> IndexedSplit | None:
    """The training set, if its batches are read on the host; None where it is sampled, or fits on every device."""
    train = dataset.splits["train"]
    if isinstance(train, IndexedSplit):
        return train
    if isinstance(train, ArraySplit) and devices.several and nbytes(train.arrays) > device_bytes:
        return StoredRows(train)
    return None


def place_training_data(dataset: Dataset, devices: Devices) -> Batch:
    """The stored arrays of the training set on every device; nothing where batches are sampled."""
    train = dataset.splits["train"]
    placed: Batch = devices.replicate(dict(train.arrays)) if isinstance(train, ArraySplit) else {}
    return placed


def make_probe(dataset: Dataset) -> Batch:
    """A fixed sample of stored training examples, on which the loss of a trial's start is taken."""
    found = read_sample(dataset.splits["train"], PROBE_EXAMPLES, seed=0)
    return {name: jnp.asarray(values) for name, values in found.items()}


def evaluated_counts(dataset: Dataset, plan: EvaluationPlan) -> dict[str, int]:
    """How many examples of each split are evaluated; splits left out by the plan are missing."""
    counts: dict[str, int] = {}
    for split, wanted in plan.examples.items():
        if wanted == 0:
            continue
        if split not in dataset.splits:
            raise SpecError(
                f"evaluation.examples.{split}: data set '{dataset.name}' has no such split. "
                f"Found the splits {', '.join(dataset.splits)}; set it to 0 to leave it out."
            )
        found = dataset.splits[split]
        most = SAMPLED_EXAMPLES if isinstance(found, SampledSplit) else found.num_examples
        if isinstance(found, SampledSplit) and wanted != ALL:
            most = int(wanted)
        counts[split] = most if wanted == ALL else min(int(wanted), most)
    return counts


def read_sample(split: Split, count: int, seed: int) -> HostBatch:
    """A fixed sample of a split on the host; all of it, in stored order, where ``count`` covers it."""
    if isinstance(split, SampledSplit):
        drawn = split.sample(jax.random.key(seed, impl="threefry2x32"), count)
        return {name: np.asarray(values) for name, values in drawn.items()}
    indices = sample_indices(split.num_examples, count, seed)
    if isinstance(split, IndexedSplit):
        return split.read(indices, None)
    return {name: values[indices] for name, values in split.arrays.items()}


def sample_indices(num_examples: int, count: int, seed: int) -> NDArray[np.int64]:
    """Which examples are taken: a random choice, in growing order, the same wherever it is made."""
    if count >= num_examples:
        return np.arange(num_examples, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(num_examples, count, replace=False)).astype(np.int64)


def split_seed(split: str) -> int:
    """The seed that chooses the evaluated examples of a split."""
    return _SPLIT_SEEDS.get(split, 0)


def nbytes(tree: Mapping[str, Any]) -> int:
    """The memory of a batch."""
    return sum(int(leaf.nbytes) for leaf in tree.values())
