"""Linear layers and word embeddings."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import uniform

_COLUMNS = 256
_MANY_ROWS = 128


def flat(values: jax.Array) -> jax.Array:
    """Return one row per word of a batch of sentences: matrices multiply faster on a CPU than arrays of three axes."""
    return values.reshape(-1, values.shape[-1])


class Linear(nnx.Linear):
    """``nnx.Linear`` with the product of ``dot_in_columns``."""

    def __init__(self, num_inputs: int, num_outputs: int, **options: Any) -> None:
        super().__init__(num_inputs, num_outputs, dot_general=dot_in_columns, **options)


def dot_in_columns(inputs: jax.Array, kernel: jax.Array, dimensions: Any, **options: Any) -> jax.Array:
    """``jax.lax.dot_general`` of a layer's inputs with its weights, the gradient to wide weights made in parts.

    On one core XLA's product of a transposed matrix with a wide one takes 1.7 times as long as that with its columns in
    parts (decision 0042).
    """
    del dimensions  # those of a linear layer: the last axis of the inputs, the first of the weights
    rows = flat(inputs)
    many = rows.shape[0] >= _MANY_ROWS and kernel.shape[-1] > _COLUMNS
    if many and jax.default_backend() == "cpu":
        product = _product(rows, kernel)
    else:
        product = jax.lax.dot_general(rows, kernel, (((1,), (0,)), ((), ())), **options)
    return product.reshape(*inputs.shape[:-1], -1)


@jax.custom_vjp
def _product(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    return inputs @ kernel


def _product_forward(inputs: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return inputs @ kernel, (inputs, kernel)


def _product_backward(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    inputs, kernel = residuals
    parts = [inputs.T @ gradient[:, i : i + _COLUMNS] for i in range(0, kernel.shape[1], _COLUMNS)]
    return gradient @ kernel.T, jnp.concatenate(parts, axis=1)


_product.defvjp(_product_forward, _product_backward)


class Embedding(nnx.Module):
    """A vector for each word. Unlike ``nnx.Embed`` without a type it computes in that of its parameters."""

    def __init__(self, vocabulary: int, width: int, deviation: float, *, dtype: DType, rngs: nnx.Rngs) -> None:
        self.table = nnx.Param(uniform(deviation)(rngs.params(), (vocabulary, width), jnp.float32))
        self.dtype = dtype

    def __call__(self, words: jax.Array) -> jax.Array:
        """Return the vectors of the words."""
        return self._values()[words]

    def scores(self, values: jax.Array) -> jax.Array:
        """Return the product of values with the vector of every word."""
        scores = flat(values) @ self._values().T
        return scores.reshape(*values.shape[:-1], -1)

    def _values(self) -> jax.Array:
        table: jax.Array = self.table[...]
        return table if self.dtype is None else table.astype(self.dtype)
