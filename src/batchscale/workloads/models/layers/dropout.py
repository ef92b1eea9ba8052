"""Dropout with cheap random bits."""

import jax
import jax.numpy as jnp

from batchscale.workloads.random_bits import keep_mask


def dropout(values: jax.Array, rate: float, *, train: bool, key: jax.Array, stream: int) -> jax.Array:
    """The values with a part of ``rate`` set to 0 and the others scaled up to the same mean; unchanged in evaluation.

    ``stream`` is the number of the place in the model, so that no two places drop the same units.
    """
    if not train or rate == 0:
        return values
    kept = keep_mask(key, stream, values.shape, rate)
    return jnp.where(kept, values / (1 - rate), jnp.zeros((), values.dtype))
