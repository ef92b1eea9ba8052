"""Sums over a part of a batch: loss, weight, gradient, and its share of the changed model state. Pure.

Sums, not means, are what microbatches and devices can add up; one division at the end makes them the batch's.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from batchscale.training.state import TrialState
from batchscale.workloads.random_bits import examples_from
from batchscale.workloads.workload import Batch, ModelState, Params, Workload

Fetch = Callable[[jax.Array | int, int], Batch]
"""The stored examples of this step's batch from a start on, a static number of them."""


class StepSums:
    """The sums over any range of a batch of ``batch_size`` examples, in microbatches."""

    def __init__(self, workload: Workload, batch_size: int, microbatch: int) -> None:
        self._workload = workload
        self._batch_size = batch_size
        self._microbatch = microbatch

    def loss_sum(
        self, params: Params, state: TrialState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, ModelState]]:
        """The loss summed over prepared examples; its weight; the model state that they alone would make."""
        inputs = batch["inputs"]
        outputs, changed = self._workload.model.apply(params, state.model_state, inputs, train=True, key=key)
        changed = jax.tree.map(lambda new, old: new.astype(old.dtype), changed, state.model_state)
        loss = self._workload.loss(outputs.astype(jnp.float32), batch, state.metaparameters)
        return loss.total, (loss.weight, changed)

    def zeros(self, state: TrialState) -> Any:
        """The sums over nothing."""
        return (jnp.float32(0), jnp.float32(0), *jax.tree.map(jnp.zeros_like, (state.params, state.model_state)))

    def over(self, state: TrialState, fetch: Fetch, key: jax.Array, start: jax.Array | int, count: int) -> Any:
        """Loss, weight, gradient and model state over ``count`` examples from ``start`` on."""
        grad = jax.value_and_grad(self.loss_sum, has_aux=True)

        def add(first: jax.Array | int, size: int, sums: Any) -> Any:
            batch = self._workload.dataset.prepare(fetch(first, size))
            with examples_from(first):  # dropout as in the whole batch
                (total, (weight, changed)), grads = grad(state.params, state, batch, key)
            changed = jax.tree.map(lambda leaf: leaf * (size / self._batch_size), changed)
            return jax.tree.map(jnp.add, sums, (total, jnp.asarray(weight, jnp.float32), grads, changed))

        micro = min(self._microbatch, count)
        whole, rest = divmod(count, micro)
        sums = jax.lax.fori_loop(0, whole, lambda i, sums: add(start + i * micro, micro, sums), self.zeros(state))
        return add(start + whole * micro, rest, sums) if rest else sums


def mean_of_sums(sums: Any) -> tuple[jax.Array, Params, ModelState]:
    """The mean loss, the gradient of it, and the model state."""
    total, weight, grads, model_state = sums
    weight = jnp.where(weight > 0, weight, 1)
    return total / weight, jax.tree.map(lambda leaf: leaf / weight, grads), model_state
