"""The examples that trials are measured on: packed on the device, or streamed from the host where they do not fit."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.spec import EvaluationPlan
from batchscale.training.evaluation import EvaluationData, measure_batch, pack, values_of
from batchscale.training.loop import take_member
from batchscale.training.placement import evaluated_counts, read_sample, sample_indices, split_seed
from batchscale.training.state import TrialState
from batchscale.workloads.workload import Batch, IndexedSplit, Workload

MAX_DEVICE_BYTES = 512 * 2**20


class EvaluationSets:
    """The evaluated splits of a study."""

    def __init__(self, workload: Workload, plan: EvaluationPlan, largest_batch: int) -> None:
        self._workload = workload
        self._largest_batch = largest_batch
        self.on_device: dict[str, EvaluationData] = {}
        self._streamed: dict[str, NDArray[np.int64]] = {}
        for split, count in evaluated_counts(workload.dataset, plan).items():
            source = workload.dataset.splits[split]
            if isinstance(source, IndexedSplit) and _estimate_bytes(source, count) > MAX_DEVICE_BYTES:
                self._streamed[split] = sample_indices(source.num_examples, count, split_seed(split))
            else:
                self.on_device[split] = pack(read_sample(source, count, split_seed(split)), largest_batch)

        def measure(population: TrialState, slot: jax.Array, batch: Batch, weights: jax.Array) -> dict[str, Any]:
            return measure_batch(workload, take_member(population, slot), batch, weights)

        self._measure = jax.jit(measure)

    def evaluate_streamed(self, population: TrialState, slots: Sequence[int]) -> dict[str, NDArray[np.float32]]:
        """The metrics on the splits that are streamed, each batch read once for all slots."""
        found: dict[str, NDArray[np.float32]] = {}
        for split, indices in self._streamed.items():
            sums: list[Any] = [None] * len(slots)
            for start in range(0, len(indices), self._largest_batch):
                batch, weights = self._read(split, indices[start : start + self._largest_batch])
                for place, slot in enumerate(slots):
                    new = self._measure(population, jnp.int32(slot), batch, weights)
                    old = sums[place]
                    sums[place] = new if old is None else jax.tree.map(jnp.add, old, new)
            values = [values_of(self._workload, split, one) for one in sums]
            found |= {name: np.array([np.asarray(value[name]) for value in values]) for name in values[0]}
        return found

    def _read(self, split: str, indices: NDArray[np.int64]) -> tuple[Batch, jax.Array]:
        source = self._workload.dataset.splits[split]
        assert isinstance(source, IndexedSplit)
        packed = pack(source.read(_padded(indices, self._largest_batch), None), self._largest_batch)
        weights = np.zeros(self._largest_batch, np.float32)
        weights[: len(indices)] = 1
        return {name: values[0] for name, values in packed.arrays.items()}, jnp.asarray(weights)


def _padded(indices: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return np.concatenate([indices, np.repeat(indices[:1], size - len(indices))])


def _estimate_bytes(split: IndexedSplit, count: int) -> int:
    return count * sum(int(np.asarray(values).nbytes) for values in split.read(np.arange(1), None).values())
