"""Metrics that are means over examples or tokens: a sum of values and a sum of weights."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from batchscale.workloads.workload import Batch

Sums = tuple[jax.Array, jax.Array]


def mean_of(
    values: Callable[[jax.Array, Batch], jax.Array], *, per_token: bool = False
) -> Callable[[jax.Array, Batch, jax.Array], Sums]:
    """The measure of a metric that has a value per example, or one per token; the mask of the batch leaves some out."""

    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> Sums:
        if per_token:
            weights = batch["mask"].astype(jnp.float32) * weights[:, None]
        elif "mask" in batch:
            weights = batch["mask"].astype(jnp.float32) * weights
        # Padding may hold anything, so its values are left out rather than multiplied by 0: 0·nan is nan.
        counted = jnp.where(weights > 0, values(outputs, batch) * weights, 0.0)
        return jnp.sum(counted), jnp.sum(weights)

    return measure


def ratio(sums: Sums) -> jax.Array:
    """The mean: the total over the weight."""
    total, weight = sums
    return total / weight
