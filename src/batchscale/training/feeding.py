"""Host feeding: batches of a training set that does not fit on the device, read while the device computes.

A process reads the examples of its own devices alone.

The unit is the batch of one step of one trial, named by the trial's order key and its position in the data, so that
whatever is read depends on nothing else: a resumed trial is fed what an uninterrupted one was.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from batchscale.training.devices import ALONG_EXAMPLES, Devices
from batchscale.training.order import host_indices, mix
from batchscale.training.shards import Shards
from batchscale.workloads.workload import Batch, HostBatch, IndexedSplit

BLOCK_BYTES = 64 * 2**20
MAX_BLOCK_STEPS = 64


@dataclass(frozen=True)
class Position:
    """Where a trial stands in its data: the words of its order key, and the number of examples behind it."""

    key: tuple[int, int]
    examples: int


class HostFeed:
    """Blocks of batches with leading axes slot and step; the next block is read in a thread of its own."""

    def __init__(
        self, split: IndexedSplit, batch_size: int, slots: int, devices: Devices, shards: Shards | None = None
    ) -> None:
        self._split = split
        self._batch_size = batch_size
        self._slots = slots
        self._devices = devices
        per_device = batch_size if shards is None else shards.rows_per_device
        here = devices.local_range
        self._first, self._places = here.start * per_device, len(here) * per_device
        self._rows = max(0, min(self._places, batch_size - self._first))  # the last devices may have less, or nothing
        self._all_places = per_device * devices.num_devices
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed")
        self._pending: dict[Position, Future[HostBatch]] = {}
        self._like = {name: np.asarray(values) for name, values in split.read(np.arange(1), None).items()}
        example_bytes = sum(values[0].nbytes for values in self._like.values())
        step_bytes = max(1, slots * self._places * example_bytes)
        self.block_steps = int(max(1, min(MAX_BLOCK_STEPS, BLOCK_BYTES // step_bytes)))

    def take(self, positions: Sequence[Position | None], num_steps: int) -> Batch:
        """The next ``num_steps`` (at most ``block_steps``) batches of every slot that has a position."""
        shape = (self._slots, self.block_steps, self._places)
        block = {name: np.zeros(shape + values.shape[1:], values.dtype) for name, values in self._like.items()}
        for slot, start in enumerate(positions):
            for i in range(num_steps if start else 0):
                for name, values in self._request(_later(start, i * self._batch_size)).result().items():
                    block[name][slot, i, : self._rows] = values
        self._read_ahead(positions, num_steps)
        return {name: self._place(values) for name, values in block.items()}

    def _place(self, values: NDArray[Any]) -> jax.Array:
        """The rows of this process' devices, each where it belongs."""
        first, shape = self._first, (*values.shape[:2], self._all_places, *values.shape[3:])

        def read(at: tuple[slice, ...]) -> NDArray[Any]:
            start, stop = at[2].start or 0, self._all_places if at[2].stop is None else at[2].stop
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
        waiting = self._pending.get(position)
        return waiting if waiting is not None else self._reader.submit(self._read, position)

    def _read(self, position: Position) -> HostBatch:
        if not self._rows:  # the batch is so small that this process has none of it
            return {name: values[:0] for name, values in self._like.items()}
        key = np.array(position.key, np.uint32)
        start = position.examples + self._first
        indices, epochs = host_indices(key, start, self._rows, self._split.num_examples)
        return self._split.read(indices, example_seeds(key, indices, epochs))


def _later(position: Position | None, examples: int) -> Position:
    assert position is not None
    return Position(position.key, position.examples + examples)


def example_seeds(key: NDArray[np.uint32], indices: NDArray[np.int64], epochs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The seeds that augment these examples in these epochs."""
    with np.errstate(over="ignore"):
        epoch_bits = mix(epochs.astype(np.uint32) ^ mix(key[:1], np), np)
        high = mix(indices.astype(np.uint32) + epoch_bits, np)
        low = mix(high ^ key[1], np)
    seeds: NDArray[np.int64] = (high.astype(np.int64) << 31) ^ low.astype(np.int64)
    return seeds


def read_positions(state: Any, alive: Sequence[bool], num_examples: int) -> list[Position | None]:
    """Where the trials of a population stand; None for those that do not move."""
    keys, epochs, offsets = (np.asarray(leaf) for leaf in (state.order_key, state.epoch, state.offset))
    return [
        Position((int(keys[i][0]), int(keys[i][1])), int(epochs[i]) * num_examples + int(offsets[i])) if moves else None
        for i, moves in enumerate(alive)
    ]
