"""From a declared model and the module it stands for to the pure functions that training calls."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.declaration import PRECISIONS, ModelDeclaration
from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.nnx_model import Keys, make_model
from batchscale.workloads.workload import Model


def model_of(
    model: ModelDeclaration, make: Callable[[DType, nnx.Rngs], nnx.Module], microbatch_multiple: int = 1
) -> Model:
    """The model of a module that is made with the type to compute in and with random keys.

    With precision bfloat16 the layers compute in it while parameters stay float32.
    """
    precision = str(model.options["precision"])
    dtype = None if precision == PRECISIONS[0] else jnp.dtype(precision)
    made = make_model(model.name, lambda rngs: make(dtype, rngs), microbatch_multiple, Keys)
    return replace(made, precision=precision)
