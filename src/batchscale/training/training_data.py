"""The examples of a study: training data on the device or fed from the host, and the fixed samples of evaluation.

A training set that does not fit on the device is fed: batches are read while the device computes, by each process for
its own devices. The unit is the batch of one step of one trial, named by the trial's order key and its position in the
data, so that a resumed trial is fed the same batches as an uninterrupted one. The examples that stand for a split of
which only some are evaluated are the same for every trial of every study.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from batchscale.errors import SpecError
from batchscale.spec.durations import ALL, EvaluationPlan
from batchscale.training.devices import ALONG_EXAMPLES, Devices, Shards
from batchscale.training.order import host_indices, mix
from batchscale.workloads.workload import ArraySplit, Batch, Dataset, HostBatch, IndexedSplit, SampledSplit, Split

BLOCK_BYTES = 64 * 2**20
MAX_BLOCK_STEPS = 64
PROBE_EXAMPLES = 256
SAMPLED_EXAMPLES = 1000  # "all" examples of sampled data, which has no end
_SPLIT_SEEDS = {"train": 1, "val": 2, "test": 3}


class StoredRows(IndexedSplit):
    """A split in memory that is read on the host, because copies of it would fill the devices."""

    def __init__(self, split: ArraySplit) -> None:
        self._split = split

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return self._split.num_examples

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:
        """Return the examples as they are stored."""
        del seeds
        return {name: values[indices] for name, values in self._split.arrays.items()}


def find_fed_split(dataset: Dataset, devices: Devices, device_bytes: int) -> IndexedSplit | None:
    """Return the training set if its batches are read on the host; None if it is sampled, or fits on every device."""
    train = dataset.splits["train"]
    if isinstance(train, IndexedSplit):
        return train
    if isinstance(train, ArraySplit) and devices.several and nbytes(train.arrays) > device_bytes:
        return StoredRows(train)
    return None


def place_training_data(dataset: Dataset, devices: Devices) -> Batch:
    """Return the stored arrays of the training set on every device; nothing if batches are sampled."""
    train = dataset.splits["train"]
    placed: Batch = devices.replicate(dict(train.arrays)) if isinstance(train, ArraySplit) else {}
    return placed


def make_probe(dataset: Dataset) -> Batch:
    """Return a fixed sample of stored training examples, for the loss at the start of a trial."""
    sample = read_sample(dataset.splits["train"], PROBE_EXAMPLES, seed=0)
    return {name: jax.device_put(values) for name, values in sample.items()}


def evaluated_counts(dataset: Dataset, plan: EvaluationPlan) -> dict[str, int]:
    """Return the number of evaluated examples of each split that the plan evaluates."""
    counts: dict[str, int] = {}
    for split, number in plan.examples.items():
        if number == 0:
            continue
        if split not in dataset.splits:
            raise SpecError(
                f"evaluation.examples.{split}: data set '{dataset.name}' has no such split. "
                f"Found the splits {', '.join(dataset.splits)}; set it to 0 to leave it out."
            )
        source = dataset.splits[split]
        if isinstance(source, SampledSplit):
            counts[split] = SAMPLED_EXAMPLES if number == ALL else int(number)
        else:
            counts[split] = source.num_examples if number == ALL else min(int(number), source.num_examples)
    return counts


def read_sample(split: Split, count: int, seed: int) -> HostBatch:
    """Return a fixed sample of a split on the host; all of it, in stored order, if ``count`` covers it."""
    if isinstance(split, SampledSplit):
        drawn = split.sample(jax.random.key(seed, impl="threefry2x32"), count)
        return {name: np.asarray(values) for name, values in drawn.items()}
    indices = sample_indices(split.num_examples, count, seed)
    if isinstance(split, IndexedSplit):
        return split.read(indices, None)
    return {name: values[indices] for name, values in split.arrays.items()}


def sample_indices(num_examples: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers of a random sample, in growing order, the same on every machine."""
    if count >= num_examples:
        return np.arange(num_examples, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(num_examples, count, replace=False)).astype(np.int64)


def split_seed(split: str) -> int:
    """Return the seed that chooses the evaluated examples of a split."""
    return _SPLIT_SEEDS.get(split, 0)


def nbytes(tree: Mapping[str, Any]) -> int:
    """Return the bytes of a batch."""
    return sum(int(leaf.nbytes) for leaf in tree.values())


@dataclass(frozen=True)
class Position:
    """A trial's position in its data: the words of its order key, and the number of examples before it."""

    key: tuple[int, int]
    examples: int


class HostFeed:
    """Blocks of batches with leading axes slot and step; the next block is read in a thread."""

    def __init__(
        self, split: IndexedSplit, batch_size: int, slots: int, devices: Devices, shards: Shards | None = None
    ) -> None:
        self._split = split
        self._batch_size = batch_size
        self._slots = slots
        self._devices = devices
        per_device = batch_size if shards is None else shards.rows_per_device
        local = devices.local_range
        self._first, self._num_rows = local.start * per_device, len(local) * per_device
        self._num_filled = max(0, min(self._num_rows, batch_size - self._first))  # the last devices have fewer, or none
        self._all_rows = per_device * devices.num_devices
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed")
        self._pending: dict[Position, Future[HostBatch]] = {}
        self._like = {name: np.asarray(values) for name, values in split.read(np.arange(1), None).items()}
        example_bytes = sum(values[0].nbytes for values in self._like.values())
        step_bytes = max(1, slots * self._num_rows * example_bytes)
        self.block_steps = int(max(1, min(MAX_BLOCK_STEPS, BLOCK_BYTES // step_bytes)))

    def take(self, positions: Sequence[Position | None], num_steps: int) -> Batch:
        """Return the next ``num_steps`` (at most ``block_steps``) batches of every slot that has a position."""
        shape = (self._slots, self.block_steps, self._num_rows)
        block = {name: np.zeros(shape + values.shape[1:], values.dtype) for name, values in self._like.items()}
        for slot, start in enumerate(positions):
            for i in range(num_steps if start else 0):
                for name, values in self._request(_later(start, i * self._batch_size)).result().items():
                    block[name][slot, i, : self._num_filled] = values
        self._read_ahead(positions, num_steps)
        return {name: self._place(values) for name, values in block.items()}

    def _place(self, values: NDArray[Any]) -> jax.Array:
        """Return the rows of this process' devices, each on its device."""
        first, shape = self._first, (*values.shape[:2], self._all_rows, *values.shape[3:])

        def read(at: tuple[slice, ...]) -> NDArray[Any]:
            start, stop = at[2].start or 0, self._all_rows if at[2].stop is None else at[2].stop
            return values[:, :, start - first : stop - first]

        return self._devices.assemble(shape, ALONG_EXAMPLES, read)

    def _read_ahead(self, positions: Sequence[Position | None], num_steps: int) -> None:
        ahead = [
            _later(start, (num_steps + i) * self._batch_size)
            for start in positions
            if start
            for i in range(self.block_steps)
        ]
        self._pending = {position: self._request(position) for position in ahead}

    def _request(self, position: Position) -> Future[HostBatch]:
        pending = self._pending.get(position)
        return pending if pending is not None else self._reader.submit(self._read, position)

    def _read(self, position: Position) -> HostBatch:
        if not self._num_filled:  # the batch is so small that this process has none of it
            return {name: values[:0] for name, values in self._like.items()}
        key = np.array(position.key, np.uint32)
        start = position.examples + self._first
        indices, epochs = host_indices(key, start, self._num_filled, self._split.num_examples)
        return self._split.read(indices, example_seeds(key, indices, epochs))


def _later(position: Position | None, examples: int) -> Position:
    assert position is not None
    return Position(position.key, position.examples + examples)


def example_seeds(key: NDArray[np.uint32], indices: NDArray[np.int64], epochs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the seeds that augment these examples in these epochs."""
    with np.errstate(over="ignore"):
        epoch_bits = mix(epochs.astype(np.uint32) ^ mix(key[:1], np), np)
        high = mix(indices.astype(np.uint32) + epoch_bits, np)
        low = mix(high ^ key[1], np)
    seeds: NDArray[np.int64] = (high.astype(np.int64) << 31) ^ low.astype(np.int64)
    return seeds


def read_positions(state: Any, alive: Sequence[bool], num_examples: int) -> list[Position | None]:
    """Return the positions of the trials of a population; None for those that do not move."""
    keys, epochs, offsets = (np.asarray(leaf) for leaf in (state.order_key, state.epoch, state.offset))
    return [
        Position((int(keys[i][0]), int(keys[i][1])), int(epochs[i]) * num_examples + int(offsets[i])) if moves else None
        for i, moves in enumerate(alive)
    ]
