"""Evaluation of trials on whole splits, in compiled batches.

Splits are packed on the device, or streamed from the host if they do not fit. The members of a population that are due
are evaluated one after the other inside one program, never mapped: a measurement has the same bits alone and in any
population, and costs nothing for members that are not due.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.spec.durations import EvaluationPlan
from batchscale.training.averages import over_averages
from batchscale.training.devices import ALONG_BATCHES, EVERYWHERE, LOGICAL_SHARDS, Devices, gather, hide
from batchscale.training.state import TrialState, take_member
from batchscale.training.training_data import evaluated_counts, read_sample, sample_indices, split_seed
from batchscale.workloads.workload import Batch, HostBatch, IndexedSplit, Workload

MAX_DEVICE_BYTES = 512 * 2**20
"""The limit for a split on a device; a larger one is streamed."""

Evaluate = Callable[[TrialState, NDArray[np.int32], np.int32, Any], dict[str, jax.Array]]
"""(population, slots that are due first, how many are due, evaluation data) → values by split/metric.

Values have axes place and average; a trial without averages has one value."""

ReadRows = Callable[[NDArray[np.int64]], HostBatch]
"""Returns the examples with these numbers (host)."""


@dataclass(frozen=True)
class EvaluationData:
    """One split as batches on the device: leading axes batch and example, the last batch padded with weight 0."""

    arrays: Batch
    weights: jax.Array


jax.tree_util.register_dataclass(EvaluationData, data_fields=["arrays", "weights"], meta_fields=[])


@dataclass(frozen=True)
class Packing:
    """The shape of a packed split: batches of ``size`` examples, of which ``count`` are not padding."""

    count: int
    batches: int
    size: int


def plan_packing(count: int, largest_batch: int, devices: Devices) -> Packing:
    """Return equal batches of at most ``largest_batch``; with exact sums the same for any number of devices."""
    parts = LOGICAL_SHARDS if devices.exact else devices.num_devices
    batches = -(-count // (parts * largest_batch)) * parts
    size = -(-count // batches)
    return Packing(count, -(-batches // devices.num_devices) * devices.num_devices, size)


def pack(arrays: HostBatch, largest_batch: int, devices: Devices) -> EvaluationData:
    """Return the examples in equal batches of at most ``largest_batch``."""
    count = len(next(iter(arrays.values())))
    stored = {name: np.asarray(values) for name, values in arrays.items()}
    return pack_rows(
        lambda rows: {name: values[rows] for name, values in stored.items()},
        plan_packing(count, largest_batch, devices),
        devices,
    )


def pack_rows(read: ReadRows, packing: Packing, devices: Devices) -> EvaluationData:
    """Return the examples that ``read`` returns for their numbers; each process reads those of its own devices."""
    rows = np.arange(packing.batches * packing.size).reshape(packing.batches, packing.size)
    weights = (rows < packing.count).astype(np.float32)
    rows[rows >= packing.count] = 0
    per_device = packing.batches // devices.num_devices
    first = devices.local_range.start * per_device
    local = rows[first : devices.local_range.stop * per_device]
    arrays = read(local.reshape(-1))

    def place(values: NDArray[Any]) -> jax.Array:
        shaped = values.reshape(*local.shape, *values.shape[1:])
        shape = (*rows.shape, *values.shape[1:])
        return devices.assemble(
            shape, ALONG_BATCHES, lambda at: shaped[(at[0].start or 0) - first : (at[0].stop or len(rows)) - first]
        )

    packed = {name: place(np.asarray(values)) for name, values in arrays.items()}
    return EvaluationData(packed, devices.lay_out(weights, ALONG_BATCHES))


def measure_batch(workload: Workload, state: TrialState, batch: Batch, weights: jax.Array) -> dict[str, Any]:
    """Return the sums of every metric over one stored batch."""
    prepared = workload.dataset.prepare(batch)
    unused = jax.random.key(0)
    outputs, _ = workload.model.apply(state.params, state.model_state, prepared["inputs"], train=False, key=unused)
    outputs = outputs.astype(jnp.float32)
    return {metric.name: metric.measure(outputs, prepared, weights) for metric in workload.metrics}


def measure_split(workload: Workload, state: TrialState, data: EvaluationData, devices: Devices) -> dict[str, Any]:
    """Return the sums of every metric over one split: those of its batches, added in the order of the batches.

    On several devices each measures its own batches. The order of the sum does not depend on the devices.
    """

    def at(i: jax.Array | int) -> dict[str, Any]:
        batch = {name: leaf[i] for name, leaf in data.arrays.items()}
        return measure_batch(workload, state, batch, data.weights[i])

    def add(number: int, term: Callable[[jax.Array | int], dict[str, Any]]) -> dict[str, Any]:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(term, 0))
        sums: dict[str, Any] = jax.lax.fori_loop(0, number, lambda i, sums: jax.tree.map(jnp.add, sums, term(i)), zeros)
        return sums

    count = len(data.weights)
    if not devices.several:
        return add(count, at)
    rows = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), jax.eval_shape(at, 0))
    rounds = hide(jnp.int32(count))  # hidden, as in `ShardedGradients`
    rows = jax.lax.fori_loop(
        0, rounds, lambda i, rows: jax.tree.map(lambda row, new: row.at[i].set(new), rows, at(i)), rows
    )
    everywhere = jax.tree.map(gather, rows)
    return add(count * devices.num_devices, lambda i: jax.tree.map(lambda leaf: leaf[i], everywhere))


def values_of(workload: Workload, split: str, sums: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Return the metric values by ``split/metric`` from their sums."""
    return {
        f"{split}/{metric.name}": jnp.asarray(metric.value(sums[metric.name]), jnp.float32)
        for metric in workload.metrics
    }


def make_measure(workload: Workload, devices: Devices) -> Callable[[TrialState, Any], dict[str, jax.Array]]:
    """Return the function that measures a trial on every split; its values have an axis of averages."""

    def measure_all(state: TrialState, data: Mapping[str, EvaluationData]) -> dict[str, jax.Array]:
        values: dict[str, jax.Array] = {}
        for split, packed in data.items():
            values |= values_of(workload, split, measure_split(workload, state, packed, devices))
        return values

    return lambda state, data: over_averages(lambda of: measure_all(of, data), state)


def make_evaluate(workload: Workload, slots: int, devices: Devices) -> Evaluate:
    """Return the compiled program that evaluates the members that are due on every split."""
    measure = make_measure(workload, devices)

    def evaluate(
        population: TrialState, due: jax.Array, count: jax.Array, data: Mapping[str, EvaluationData]
    ) -> dict[str, jax.Array]:
        names = jax.eval_shape(measure, take_member(population, due[0]), data)
        values = {name: jnp.full((slots, *value.shape), jnp.nan, jnp.float32) for name, value in names.items()}

        def body(i: jax.Array, values: dict[str, jax.Array]) -> dict[str, jax.Array]:
            new = measure(take_member(population, due[i]), data)
            return {name: values[name].at[i].set(new[name]) for name in values}

        measured: dict[str, jax.Array] = jax.lax.fori_loop(jnp.int32(0), count, body, values)
        return measured

    return jax.jit(devices.on_each(evaluate, (EVERYWHERE, EVERYWHERE, EVERYWHERE, ALONG_BATCHES)))


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
            member = take_member(population, slot)
            sums: dict[str, Any] = over_averages(lambda state: measure_split(workload, state, data, devices), member)
            return sums

        self._measure = jax.jit(devices.on_each(measure, (EVERYWHERE, EVERYWHERE, ALONG_BATCHES)))

    @property
    def all_on_device(self) -> bool:
        """True if there are splits to evaluate, and none is streamed from the host."""
        return bool(self.on_device) and not self._streamed

    def evaluate_streamed(self, population: TrialState, slots: Sequence[int]) -> dict[str, NDArray[np.float32]]:
        """Return the metrics on the splits that are streamed; each batch is read once for all slots."""
        metrics: dict[str, NDArray[np.float32]] = {}
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
            values = [jax.vmap(partial(values_of, self._workload, split))(slot_sums) for slot_sums in sums]
            metrics |= {name: np.array([np.asarray(value[name]) for value in values]) for name in values[0]}
        return metrics

    def _read(self, split: str, indices: NDArray[np.int64], packing: Packing) -> EvaluationData:
        source = self._workload.dataset.splits[split]
        assert isinstance(source, IndexedSplit)
        return pack_rows(lambda rows: source.read(indices[rows], None), packing, self._devices)


def _estimate_bytes(split: IndexedSplit, count: int) -> int:
    return count * sum(int(np.asarray(values).nbytes) for values in split.read(np.arange(1), None).values())
