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

from batchscale.training.loop import take_member
from batchscale.training.state import TrialState
from batchscale.workloads.workload import Batch, HostBatch, Workload

Evaluate = Callable[[TrialState, jax.Array, jax.Array, Any], dict[str, jax.Array]]
"""(population, slots that are due first, how many are due, evaluation data) → values by split/metric and place."""


@dataclass(frozen=True)
class EvaluationData:
    """One split as batches on the device: leading axes batch and example, the last batch padded with weight 0."""

    arrays: Batch
    weights: jax.Array


jax.tree_util.register_dataclass(EvaluationData, data_fields=["arrays", "weights"], meta_fields=[])


def pack(arrays: HostBatch, largest_batch: int) -> EvaluationData:
    """The examples in equal batches of at most ``largest_batch``."""
    count = len(next(iter(arrays.values())))
    batches = -(-count // largest_batch)
    size = -(-count // batches)

    def shape(values: NDArray[Any]) -> jax.Array:
        padding = np.repeat(values[:1], batches * size - count, axis=0)
        return jnp.asarray(np.concatenate([values, padding]).reshape(batches, size, *values.shape[1:]))

    weights = np.concatenate([np.ones(count, np.float32), np.zeros(batches * size - count, np.float32)])
    packed = {name: shape(np.asarray(leaf)) for name, leaf in arrays.items()}
    return EvaluationData(packed, jnp.asarray(weights.reshape(batches, size)))


def measure_batch(workload: Workload, state: TrialState, batch: Batch, weights: jax.Array) -> dict[str, Any]:
    """The sums of every metric over one stored batch."""
    prepared = workload.dataset.prepare(batch)
    unused = jax.random.key(0)
    outputs, _ = workload.model.apply(state.params, state.model_state, prepared["inputs"], train=False, key=unused)
    outputs = outputs.astype(jnp.float32)
    return {metric.name: metric.measure(outputs, prepared, weights) for metric in workload.metrics}


def measure_split(workload: Workload, state: TrialState, data: EvaluationData) -> dict[str, Any]:
    """The sums of every metric over one split."""

    def at(i: jax.Array | int) -> dict[str, Any]:
        batch = {name: leaf[i] for name, leaf in data.arrays.items()}
        return measure_batch(workload, state, batch, data.weights[i])

    shapes = jax.eval_shape(at, 0)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sums: dict[str, Any] = jax.lax.fori_loop(
        0, len(data.weights), lambda i, sums: jax.tree.map(jnp.add, sums, at(i)), zeros
    )
    return sums


def values_of(workload: Workload, split: str, sums: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The metric values by ``split/metric`` from their sums."""
    return {
        f"{split}/{metric.name}": jnp.asarray(metric.value(sums[metric.name]), jnp.float32)
        for metric in workload.metrics
    }


def make_evaluate(workload: Workload, slots: int) -> Evaluate:
    """The compiled program that evaluates the members that are due on every split."""

    def one(population: TrialState, slot: jax.Array, data: Mapping[str, EvaluationData]) -> dict[str, jax.Array]:
        state = take_member(population, slot)
        found: dict[str, jax.Array] = {}
        for split, packed in data.items():
            found |= values_of(workload, split, measure_split(workload, state, packed))
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

    return jax.jit(evaluate)
