"""Linear layers and word embeddings."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import uniform

_FEW_ROWS = 16
_WIDE = 256


def flat(values: jax.Array) -> jax.Array:
    """Return one row per word of a batch of sentences: matrices multiply faster on a CPU than arrays of three axes."""
    return values.reshape(-1, values.shape[-1])


class Linear(nnx.Linear):
    """``nnx.Linear`` with the product of ``dot_of_rows``."""

    def __init__(self, num_inputs: int, num_outputs: int, **options: Any) -> None:
        super().__init__(num_inputs, num_outputs, dot_general=dot_of_rows, **options)


def dot_of_rows(inputs: jax.Array, kernel: jax.Array, dimensions: Any, **options: Any) -> jax.Array:
    """``jax.lax.dot_general`` of a layer's inputs with its weights; on a CPU with a faster gradient to the weights.

    A single row keeps JAX's own gradient: it is an outer product, which XLA fuses with the update. So do many rows with
    few outputs: there is little to gain, and laying out the inputs can cost their activation function once more.
    """
    del dimensions  # those of a linear layer: the last axis of the inputs, the first of the weights
    rows = flat(inputs)
    pays = 1 < rows.shape[0] <= _FEW_ROWS or (rows.shape[0] > 1 and kernel.shape[-1] > _WIDE)
    if pays and rows.shape[1] % 2 == 0 and jax.default_backend() == "cpu":
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
    """Return both gradients; that to the weights as a product with the transposed inputs, which XLA lays out first.

    It does so for inputs of three axes only. Its product that reads the inputs across takes up to 3 times as long for a
    few rows, and 1.1 times for many (decision 0250).
    """
    inputs, kernel = residuals
    halves = inputs.reshape(inputs.shape[0], 2, -1)
    to_kernel = jnp.einsum("khm,kn->hmn", halves, gradient).reshape(kernel.shape)
    return gradient @ kernel.T, to_kernel


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
