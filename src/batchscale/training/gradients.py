"""The loss and gradient of a batch: at once, summed over microbatches, or summed over devices. Pure.

Microbatches and devices add sums, not means; one division at the end gives the mean of the batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from batchscale.training.devices import AXIS, Shards, add_up, gather, hide
from batchscale.training.state import TrialState
from batchscale.workloads.random_bits import examples_from
from batchscale.workloads.workload import Batch, ModelState, Params, Workload

Fetch = Callable[[jax.Array | int, int], Batch]
"""Returns a static number of stored examples of this step's batch from a start on."""

ComputeGradients = Callable[[TrialState, Fetch, jax.Array], tuple[jax.Array, Params, ModelState]]
"""(state, fetch, key) → mean loss, its gradient, changed model state."""


def make_gradients(
    workload: Workload, batch_size: int | jax.Array, microbatch: int, shards: Shards | None
) -> ComputeGradients:
    """Return the function that computes the gradient of a batch; with ``shards`` it lies on several devices.

    A batch size that is not a constant of the program must be a multiple of ``microbatch``.
    """
    sums = BatchSums(workload, batch_size, microbatch)
    if shards is not None:
        return ShardedGradients(sums, shards)
    is_whole = isinstance(batch_size, int) and microbatch >= batch_size
    return partial(_compute_whole if is_whole else _accumulate, sums)


class BatchSums:
    """Sums over any range of a batch, in microbatches: loss, weight, gradient, and share of the new model state."""

    def __init__(self, workload: Workload, batch_size: int | jax.Array, microbatch: int) -> None:
        self.workload = workload
        self.batch_size = batch_size
        self._microbatch = microbatch

    def loss_sum(
        self, params: Params, state: TrialState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, ModelState]]:
        """Return the loss summed over prepared examples, its weight, and the model state after them alone."""
        inputs = batch["inputs"]
        outputs, changed = self.workload.model.apply(params, state.model_state, inputs, train=True, key=key)
        changed = jax.tree.map(lambda new, old: new.astype(old.dtype), changed, state.model_state)
        loss = self.workload.loss(outputs.astype(jnp.float32), batch, state.metaparameters)
        return loss.total, (loss.weight, changed)

    def zeros(self, state: TrialState) -> Any:
        """Return the sums over no examples."""
        return (jnp.float32(0), jnp.float32(0), *jax.tree.map(jnp.zeros_like, (state.params, state.model_state)))

    def over(
        self, state: TrialState, fetch: Fetch, key: jax.Array, start: jax.Array | int, count: int | jax.Array
    ) -> Any:
        """Return loss, weight, gradient and model state over ``count`` examples from ``start`` on."""
        grad = jax.value_and_grad(self.loss_sum, has_aux=True)

        def add(first: jax.Array | int, size: int, sums: Any) -> Any:
            batch = self.workload.dataset.prepare(fetch(first, size))
            with examples_from(first):  # dropout as in the whole batch
                (total, (weight, changed)), grads = grad(state.params, state, batch, key)
            changed = jax.tree.map(lambda leaf: leaf * (size / self.batch_size), changed)
            return jax.tree.map(jnp.add, sums, (total, jnp.asarray(weight, jnp.float32), grads, changed))

        micro = min(self._microbatch, count) if isinstance(count, int) else self._microbatch
        whole, rest = count // micro, count % micro if isinstance(count, int) else 0
        sums = jax.lax.fori_loop(0, whole, lambda i, sums: add(start + i * micro, micro, sums), self.zeros(state))
        return add(start + whole * micro, rest, sums) if rest else sums


def _compute_whole(
    sums: BatchSums, state: TrialState, fetch: Fetch, key: jax.Array
) -> tuple[jax.Array, Params, ModelState]:
    """Compute the gradient of a batch that is one microbatch."""
    assert isinstance(sums.batch_size, int)
    batch = sums.workload.dataset.prepare(fetch(0, sums.batch_size))

    def mean_loss(params: Params) -> tuple[jax.Array, ModelState]:
        total, (weight, model_state) = sums.loss_sum(params, state, batch, key)
        return total / jnp.where(weight > 0, weight, 1), model_state

    (loss, model_state), grads = jax.value_and_grad(mean_loss, has_aux=True)(state.params)
    return loss, grads, model_state


def _accumulate(
    sums: BatchSums, state: TrialState, fetch: Fetch, key: jax.Array
) -> tuple[jax.Array, Params, ModelState]:
    return _divide(sums.over(state, fetch, key, 0, sums.batch_size))


def _divide(sums: Any) -> tuple[jax.Array, Params, ModelState]:
    """Return the mean loss, its gradient, and the model state."""
    total, weight, grads, model_state = sums
    weight = jnp.where(weight > 0, weight, 1)
    return total / weight, jax.tree.map(lambda leaf: leaf / weight, grads), model_state


class ShardedGradients:
    """The gradient of a batch on several devices: each sums over its own examples, then all sums are added once.

    Runs inside a program that is mapped over devices. Everything that is added goes through one flat buffer: one
    exchange per step, whatever the number of layers and microbatches.
    """

    def __init__(self, sums: BatchSums, shards: Shards) -> None:
        self._sums = sums
        self._shards = shards

    def __call__(self, state: TrialState, fetch: Fetch, key: jax.Array) -> tuple[jax.Array, Params, ModelState]:
        """Return the same result on every device."""
        zeros = self._sums.zeros(state)
        _, unravel = ravel_pytree(zeros)
        sum_shard = partial(self._sum_shard, state, fetch, key)
        nothing = jnp.minimum(state.step, 0)
        if self._shards.exact:
            return _divide(unravel(self._add_in_order(sum_shard, nothing)))
        return _divide(unravel(add_up(sum_shard(jax.lax.axis_index(AXIS)))))

    def _sum_shard(self, state: TrialState, fetch: Fetch, key: jax.Array, shard: jax.Array) -> jax.Array:
        """Return the sums of a shard. A smaller one is computed at its own size: a model never sees padding."""
        counts = self._shards.counts
        sizes = sorted(set(counts))

        def sums_of(count: int, start: jax.Array) -> jax.Array:
            sums = self._sums.over(state, fetch, key, start, count) if count else self._sums.zeros(state)
            return ravel_pytree(sums)[0]

        start = shard * self._shards.size
        if len(sizes) == 1:
            return sums_of(sizes[0], start)
        which = jnp.array([sizes.index(count) for count in counts])[shard]
        flat: jax.Array = jax.lax.switch(which, [partial(sums_of, count) for count in sizes], start)
        return flat

    def _add_in_order(self, sum_shard: Callable[[jax.Array], jax.Array], nothing: jax.Array) -> jax.Array:
        """Return every shard's sums, added in the order of the shards, on every device.

        The loop's length, and on one device its start, are hidden from the compiler behind a zero that it cannot
        deduce: it would open a loop of one round, or fold what follows from a constant start, and round differently.
        """
        per_device = self._shards.per_device
        first = jax.lax.axis_index(AXIS) * per_device + nothing
        length = jax.eval_shape(sum_shard, first).shape[0]

        def fill(i: jax.Array, rows: jax.Array) -> jax.Array:
            return rows.at[i].set(sum_shard(first + i))

        rounds = per_device + nothing
        rows = jax.lax.fori_loop(0, rounds, fill, jnp.zeros((per_device, length), jnp.float32))
        everywhere = hide(gather(rows))
        total: jax.Array = everywhere[0]
        for row in range(1, self._shards.count):
            total = total + everywhere[row]
        hidden: jax.Array = hide(total)
        return hidden
