"""Evaluation of trials on whole splits, in compiled batches.

The members of a population that are due are evaluated one after the other inside one program, never mapped: a
measurement has the same bits alone and in any population, and costs nothing for members that are not due.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.training.devices import ALONG_BATCHES, EVERYWHERE, Devices, gather, hide
from batchscale.training.loop import take_member
from batchscale.training.shards import LOGICAL_SHARDS
from batchscale.training.state import TrialState
from batchscale.workloads.workload import Batch, HostBatch, Workload

Evaluate = Callable[[TrialState, NDArray[np.int32], np.int32, Any], dict[str, jax.Array]]
"""(population, slots that are due first, how many are due, evaluation data) → values by split/metric and place."""

ReadRows = Callable[[NDArray[np.int64]], HostBatch]
"""The examples with these numbers (host)."""


@dataclass(frozen=True)
class EvaluationData:
    """One split as batches on the device: leading axes batch and example, the last batch padded with weight 0."""

    arrays: Batch
    weights: jax.Array


jax.tree_util.register_dataclass(EvaluationData, data_fields=["arrays", "weights"], meta_fields=[])


@dataclass(frozen=True)
class Packing:
    """The shape of a packed split: so many batches of ``size`` examples, of which ``count`` are real."""

    count: int
    batches: int
    size: int


def plan_packing(count: int, largest_batch: int, devices: Devices) -> Packing:
    """Equal batches of at most ``largest_batch``, as many on each device; with exact sums the same for any devices."""
    parts = LOGICAL_SHARDS if devices.exact else devices.num_devices
    batches = -(-count // (parts * largest_batch)) * parts
    size = -(-count // batches)
    return Packing(count, -(-batches // devices.num_devices) * devices.num_devices, size)


def pack(arrays: HostBatch, largest_batch: int, devices: Devices) -> EvaluationData:
    """The examples in equal batches of at most ``largest_batch``."""
    count = len(next(iter(arrays.values())))
    stored = {name: np.asarray(values) for name, values in arrays.items()}
    return pack_rows(
        lambda rows: {name: values[rows] for name, values in stored.items()},
        plan_packing(count, largest_batch, devices),
        devices,
    )


def pack_rows(read: ReadRows, packing: Packing, devices: Devices) -> EvaluationData:
    """The examples that ``read`` gives for their numbers; each process reads those of its own devices."""
    rows = np.arange(packing.batches * packing.size).reshape(packing.batches, packing.size)
    weights = (rows < packing.count).astype(np.float32)
    rows[rows >= packing.count] = 0
    per_device = packing.batches // devices.num_devices
    here = devices.local_range
    first = here.start * per_device
    own = rows[first : here.stop * per_device]
    found = read(own.reshape(-1))

    def place(values: NDArray[Any]) -> jax.Array:
        shaped = values.reshape(*own.shape, *values.shape[1:])
        shape = (*rows.shape, *values.shape[1:])
        return devices.assemble(
            shape, ALONG_BATCHES, lambda at: shaped[(at[0].start or 0) - first : (at[0].stop or len(rows)) - first]
        )

    packed = {name: place(np.asarray(values)) for name, values in found.items()}
    return EvaluationData(packed, devices.lay_out(weights, ALONG_BATCHES))


def measure_batch(workload: Workload, state: TrialState, batch: Batch, weights: jax.Array) -> dict[str, Any]:
    """The sums of every metric over one stored batch."""
    prepared = workload.dataset.prepare(batch)
    unused = jax.random.key(0)
    outputs, _ = workload.model.apply(state.params, state.model_state, prepared["inputs"], train=False, key=unused)
    outputs = outputs.astype(jnp.float32)
    return {metric.name: metric.measure(outputs, prepared, weights) for metric in workload.metrics}


def measure_split(workload: Workload, state: TrialState, data: EvaluationData, devices: Devices) -> dict[str, Any]:
    """The sums of every metric over one split: those of its batches, added in the order of the batches.

    On several devices each measures its own batches. The order of the sum does not depend on the devices.
    """

    def at(i: jax.Array | int) -> dict[str, Any]:
        batch = {name: leaf[i] for name, leaf in data.arrays.items()}
        return measure_batch(workload, state, batch, data.weights[i])

    def add(number: int, one: Callable[[jax.Array | int], dict[str, Any]]) -> dict[str, Any]:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, 0))
        sums: dict[str, Any] = jax.lax.fori_loop(0, number, lambda i, sums: jax.tree.map(jnp.add, sums, one(i)), zeros)
        return sums

    here = len(data.weights)
    if not devices.several:
        return add(here, at)
    rows = jax.tree.map(lambda leaf: jnp.zeros((here, *leaf.shape), leaf.dtype), jax.eval_shape(at, 0))
    rounds = hide(jnp.int32(here))  # hidden, as in `reduction`
    rows = jax.lax.fori_loop(
        0, rounds, lambda i, rows: jax.tree.map(lambda row, new: row.at[i].set(new), rows, at(i)), rows
    )
    everywhere = jax.tree.map(gather, rows)
    return add(here * devices.num_devices, lambda i: jax.tree.map(lambda leaf: leaf[i], everywhere))


def values_of(workload: Workload, split: str, sums: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The metric values by ``split/metric`` from their sums."""
    return {
        f"{split}/{metric.name}": jnp.asarray(metric.value(sums[metric.name]), jnp.float32)
        for metric in workload.metrics
    }


def make_evaluate(workload: Workload, slots: int, devices: Devices) -> Evaluate:
    """The compiled program that evaluates the members that are due on every split."""

    def one(population: TrialState, slot: jax.Array, data: Mapping[str, EvaluationData]) -> dict[str, jax.Array]:
        state = take_member(population, slot)
        found: dict[str, jax.Array] = {}
        for split, packed in data.items():
            found |= values_of(workload, split, measure_split(workload, state, packed, devices))
        return found

    def evaluate(
        population: TrialState, due: jax.Array, count: jax.Array, data: Mapping[str, EvaluationData]
    ) -> dict[str, jax.Array]:
        names = jax.eval_shape(one, population, due[0], data)
        values = {name: jnp.full(slots, jnp.nan, jnp.float32) for name in names}

        def body(i: jax.Array, values: dict[str, jax.Array]) -> dict[str, jax.Array]:
            found = one(population, due[i], data)
            return {name: values[name].at[i].set(found[name]) for name in values}

        measured: dict[str, jax.Array] = jax.lax.fori_loop(jnp.int32(0), count, body, values)
        return measured

    return jax.jit(devices.on_each(evaluate, (EVERYWHERE, EVERYWHERE, EVERYWHERE, ALONG_BATCHES)))
