"""The examples that trials are measured on: packed on the device, or streamed from the host where they do not fit."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.spec.durations import EvaluationPlan
from batchscale.training.devices import ALONG_BATCHES, EVERYWHERE, Devices
from batchscale.training.evaluation import (
    EvaluationData,
    Packing,
    measure_split,
    pack,
    pack_rows,
    plan_packing,
    values_of,
)
from batchscale.training.loop import take_member
from batchscale.training.placement import evaluated_counts, read_sample, sample_indices, split_seed
from batchscale.training.state import TrialState
from batchscale.workloads.workload import IndexedSplit, Workload

MAX_DEVICE_BYTES = 512 * 2**20


class EvaluationSets:
    """The evaluated splits of a study."""

    def __init__(self, workload: Workload, plan: EvaluationPlan, largest_batch: int, devices: Devices) -> None:
        self._workload = workload
        self._devices = devices
        self._largest_batch = largest_batch
        self.on_device: dict[str, EvaluationData] = {}
        self._streamed: dict[str, NDArray[np.int64]] = {}
        for split, count in evaluated_counts(workload.dataset, plan).items():
            source = workload.dataset.splits[split]
            if not isinstance(source, IndexedSplit):
                self.on_device[split] = pack(read_sample(source, count, split_seed(split)), largest_batch, devices)
                continue
            indices = sample_indices(source.num_examples, count, split_seed(split))
            if _estimate_bytes(source, count) > MAX_DEVICE_BYTES * devices.num_devices:
                self._streamed[split] = indices
            else:
                self.on_device[split] = self._read(split, indices, plan_packing(count, largest_batch, devices))

        def measure(population: TrialState, slot: jax.Array, data: EvaluationData) -> dict[str, Any]:
            return measure_split(workload, take_member(population, slot), data, devices)

        self._measure = jax.jit(devices.on_each(measure, (EVERYWHERE, EVERYWHERE, ALONG_BATCHES)))

    def evaluate_streamed(self, population: TrialState, slots: Sequence[int]) -> dict[str, NDArray[np.float32]]:
        """The metrics on the splits that are streamed, each batch read once for all slots."""
        found: dict[str, NDArray[np.float32]] = {}
        for split, indices in self._streamed.items():
            sums: list[Any] = [None] * len(slots)
            at_once = self._largest_batch * self._devices.num_devices
            for start in range(0, len(indices), at_once):
                some = indices[start : start + at_once]
                data = self._read(split, some, Packing(len(some), self._devices.num_devices, self._largest_batch))
                for place, slot in enumerate(slots):
                    new = self._measure(population, np.int32(slot), data)
                    old = sums[place]
                    sums[place] = new if old is None else jax.tree.map(jnp.add, old, new)
            values = [values_of(self._workload, split, one) for one in sums]
            found |= {name: np.array([np.asarray(value[name]) for value in values]) for name in values[0]}
        return found

    def _read(self, split: str, indices: NDArray[np.int64], packing: Packing) -> EvaluationData:
        source = self._workload.dataset.splits[split]
        assert isinstance(source, IndexedSplit)
        return pack_rows(lambda rows: source.read(indices[rows], None), packing, self._devices)


def _estimate_bytes(split: IndexedSplit, count: int) -> int:
    return count * sum(int(np.asarray(values).nbytes) for values in split.read(np.arange(1), None).values())
