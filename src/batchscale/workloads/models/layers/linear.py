"""Linear layers and word embeddings."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import uniform

_LEAST_ROWS = 3
"""One row or two keep JAX's own gradient: one or two outer products, which XLA fuses with the update."""

_MOST_LAID_OUT = 2**16
"""The most weights whose gradient to the inputs is computed transposed: larger ones take longer this way."""


def flat(values: jax.Array) -> jax.Array:
    """Return one row per word of a batch of sentences: matrices multiply faster on a CPU than arrays of three axes."""
    return values.reshape(-1, values.shape[-1])


class Linear(nnx.Linear):
    """``nnx.Linear`` with the product of ``dot_of_rows``."""

    def __init__(self, num_inputs: int, num_outputs: int, **options: Any) -> None:
        super().__init__(num_inputs, num_outputs, dot_general=dot_of_rows, **options)


def dot_of_rows(inputs: jax.Array, kernel: jax.Array, dimensions: Any, **options: Any) -> jax.Array:
    """``jax.lax.dot_general`` of a layer's inputs with its weights; on a CPU with a faster gradient to the weights.

    With ``options`` that are set, such as a precision, it is the plain product.
    """
    del dimensions  # those of a linear layer: the last axis of the inputs, the first of the weights
    rows = flat(inputs)
    if _pays(rows) and not any(options.values()):
        product = _product(rows, kernel, False)
    else:
        product = jax.lax.dot_general(rows, kernel, (((1,), (0,)), ((), ())), **options)
    return product.reshape(*inputs.shape[:-1], -1)


def _pays(rows: jax.Array) -> bool:
    """Return True if the gradient to weights is faster as `sum_outer_products`: on a CPU, for several rows."""
    return rows.shape[0] >= _LEAST_ROWS and jax.default_backend() == "cpu"


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(inputs: jax.Array, weights: jax.Array, transposed: bool) -> jax.Array:
    """Return the product of inputs with the weights, or with the transposed weights."""
    return inputs @ (weights.T if transposed else weights)


def _product_forward(
    inputs: jax.Array, weights: jax.Array, transposed: bool
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(inputs, weights, transposed), (inputs, weights)


def _product_backward(
    transposed: bool, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    inputs, weights = residuals
    if transposed:
        return gradient @ weights, sum_outer_products(gradient, inputs)
    return _to_inputs(gradient, weights), sum_outer_products(inputs, gradient)


_product.defvjp(_product_forward, _product_backward)


def _to_inputs(gradient: jax.Array, weights: jax.Array) -> jax.Array:
    """Return ``gradient @ weights.T``. XLA lays out small weights anew for it; a few rows take less to be moved."""
    moved = gradient.shape[0] * sum(weights.shape)
    if moved < weights.size <= _MOST_LAID_OUT:
        return (weights @ gradient.T).T
    return gradient @ weights.T


def sum_outer_products(left: jax.Array, right: jax.Array) -> jax.Array:
    """Return ``left.T @ right`` for arrays with one row per example: the sum of the outer products of their rows.

    XLA's product that reads ``left`` across is slow, above all for a narrow ``right``. So one of them is laid out
    first, which XLA does for arrays of three axes only: the one that leaves less to be moved. Laying out what is wide
    would also compute again, in the wrong order, what leads to it, such as GELU (decision 0251).
    """
    rows, height, width = *left.shape, right.shape[1]
    if width % 2 == 0 and rows * width + height * width < rows * height:
        halves = right.reshape(rows, 2, -1)
        return jnp.einsum("khn,km->hnm", halves, left).transpose(2, 0, 1).reshape(height, width)
    if height % 2 == 0:
        halves = left.reshape(rows, 2, -1)
        return jnp.einsum("khm,kn->hmn", halves, right).reshape(height, width)
    return left.T @ right


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
        rows, table = flat(values), self._values()
        scores = _product(rows, table, True) if _pays(rows) else rows @ table.T
        return scores.reshape(*values.shape[:-1], -1)

    def _values(self) -> jax.Array:
        table: jax.Array = self.table[...]
        return table if self.dtype is None else table.astype(self.dtype)
