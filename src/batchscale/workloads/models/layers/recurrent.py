"""A gated recurrent unit, and layers that normalise each position by itself."""

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import before_output, between
from batchscale.workloads.models.layers.linear import Linear

_EPSILON = 1e-3  # as in the library that DDSP was written with
_SLOPE = 0.2


class Gru(nnx.Module):
    """Cho et al. (2014), the reset gate applied after the product: biases on both sides."""

    def __init__(self, num_inputs: int, hidden: int, *, dtype: DType, rngs: nnx.Rngs) -> None:
        self.from_inputs = Linear(num_inputs, 3 * hidden, dtype=dtype, kernel_init=between, rngs=rngs)
        self.from_outputs = Linear(hidden, 3 * hidden, dtype=dtype, kernel_init=before_output(), rngs=rngs)
        self.hidden = hidden

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """The state after every position of (batch, positions, features)."""
        given = self.from_inputs(inputs)  # all positions at once: only the recurrence has to be a loop
        start = jnp.zeros((inputs.shape[0], self.hidden), given.dtype)

        def step(state: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
            update, reset, candidate = jnp.split(now, 3, axis=-1)
            old_update, old_reset, old_candidate = jnp.split(self.from_outputs(state), 3, axis=-1)
            kept = nnx.sigmoid(update + old_update)
            fresh = jnp.tanh(candidate + nnx.sigmoid(reset + old_reset) * old_candidate)
            state = kept * state + (1 - kept) * fresh
            return state, state

        _, states = jax.lax.scan(step, start, jnp.moveaxis(given, 1, 0))
        return jnp.moveaxis(states, 0, 1)


class NormalisedLayers(nnx.Module):
    """Linear layers, each followed by layer normalization and a leaky ReLU."""

    def __init__(self, num_inputs: int, width: int, layers: int, *, dtype: DType, rngs: nnx.Rngs) -> None:
        sizes = [num_inputs, *[width] * (layers - 1)]
        self.linears = nnx.List([Linear(size, width, dtype=dtype, kernel_init=between, rngs=rngs) for size in sizes])
        self.scales = nnx.Param(jnp.ones((layers, width), jnp.float32))
        self.offsets = nnx.Param(jnp.zeros((layers, width), jnp.float32))

    def __call__(self, values: jax.Array) -> jax.Array:
        """The last layer's values, position by position."""
        for number, linear in enumerate(self.linears):
            wide = linear(values).astype(jnp.float32)
            centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
            spread = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + _EPSILON)
            normal = centred * spread * self.scales[number] + self.offsets[number]
            values = nnx.leaky_relu(normal, _SLOPE).astype(linear.dtype or jnp.float32)
        return values
