"""Word embeddings, whose transpose may also give the outputs."""

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import uniform
from batchscale.workloads.models.layers.linear import flat


class Embedding(nnx.Module):
    """A vector for each word. Unlike ``nnx.Embed`` without a type it computes in that of the parameters it is given."""

    def __init__(self, vocabulary: int, width: int, deviation: float, *, dtype: DType, rngs: nnx.Rngs) -> None:
        self.table = nnx.Param(uniform(deviation)(rngs.params(), (vocabulary, width), jnp.float32))
        self.dtype = dtype

    def __call__(self, words: jax.Array) -> jax.Array:
        """The vectors of the words."""
        return self._values()[words]

    def scores(self, values: jax.Array) -> jax.Array:
        """The product of values with the vector of every word."""
        scores = flat(values) @ self._values().T
        return scores.reshape(*values.shape[:-1], -1)

    def _values(self) -> jax.Array:
        table: jax.Array = self.table[...]
        return table if self.dtype is None else table.astype(self.dtype)
