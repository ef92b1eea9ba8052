"""The precision of a model that knows nothing of it: its numbers are cast on their way in."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from batchscale.workloads.models.declaration import PRECISIONS
from batchscale.workloads.workload import Model, ModelState, Params


def in_precision(model: Model, precision: str) -> Model:
    """The model with its forward and backward pass in this precision; parameters and state stay as they are."""
    if precision == PRECISIONS[0]:
        return model
    dtype = jnp.dtype(precision)

    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)

    def apply(
        params: Params, state: ModelState, inputs: jax.Array, *, train: bool, key: jax.Array
    ) -> tuple[jax.Array, ModelState]:
        return model.apply(cast(params), state, cast(inputs), train=train, key=key)

    return replace(model, apply=apply, precision=precision)
