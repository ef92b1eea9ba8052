"""LSTM with a projection, as a language model: a simpler LSTM-2048-512 (Jozefowicz et al., 2016), without dropout."""

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import before_output
from batchscale.workloads.models.layers.linear import Embedding, Linear


class Lstm(nnx.Module):
    """Word embeddings, one LSTM layer whose output is projected, and an output layer without bias."""

    def __init__(
        self, vocabulary: int, embedding: int, hidden: int, projection: int, *, dtype: DType, rngs: nnx.Rngs
    ) -> None:
        def linear(inputs: int, outputs: int, bias: bool = False) -> Linear:
            return Linear(inputs, outputs, use_bias=bias, dtype=dtype, kernel_init=before_output(), rngs=rngs)

        self.embed = Embedding(vocabulary, embedding, 1.0, dtype=dtype, rngs=rngs)
        self.from_inputs = linear(embedding, 4 * hidden, bias=True)
        self.from_outputs = linear(projection, 4 * hidden)
        self.project = linear(hidden, projection)
        self.output = linear(projection, vocabulary)
        self.hidden, self.projection = hidden, projection

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits of the next token at every position."""
        del train, key
        gates = self.from_inputs(self.embed(inputs))  # all positions at once: only the recurrence has to be a loop
        count, dtype = inputs.shape[0], gates.dtype
        start = (jnp.zeros((count, self.hidden), dtype), jnp.zeros((count, self.projection), dtype))

        def step(carry: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            cell, output = carry
            ingoing, forget, candidate, outgoing = jnp.split(now + self.from_outputs(output), 4, axis=-1)
            # The forget gate starts open (bias 1), so that gradients reach back from the first step on.
            cell = nnx.sigmoid(forget + 1) * cell + nnx.sigmoid(ingoing) * jnp.tanh(candidate)
            output = self.project(nnx.sigmoid(outgoing) * jnp.tanh(cell))
            return (cell, output), output

        _, outputs = jax.lax.scan(step, start, jnp.moveaxis(gates, 1, 0))
        return self.output(jnp.moveaxis(outputs, 0, 1))
