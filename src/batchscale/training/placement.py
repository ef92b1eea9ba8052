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
from batchscale.spec import ALL, EvaluationPlan
from batchscale.workloads.workload import ArraySplit, Batch, Dataset, HostBatch, IndexedSplit, SampledSplit, Split

PROBE_EXAMPLES = 256
SAMPLED_EXAMPLES = 1000  # what "all" means for data without end
_SPLIT_SEEDS = {"train": 1, "val": 2, "test": 3}


def place_training_data(dataset: Dataset) -> Batch:
    """The stored arrays of the training set on the device; nothing where batches are sampled or fed."""
    train = dataset.splits["train"]
    if not isinstance(train, ArraySplit):
        return {}
    return {name: jnp.asarray(values) for name, values in train.arrays.items()}


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
