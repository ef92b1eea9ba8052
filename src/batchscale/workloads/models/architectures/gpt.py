"""A decoder-only language model as trained today: pre-norm, RMSNorm, rotary positions, no biases."""

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.architectures.transformer import attend_backwards
from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import scaled
from batchscale.workloads.models.layers.linear import Embedding, Linear
from batchscale.workloads.random_bits import dropout

_LONGEST_WAVE = 10_000.0
_EPSILON = 1e-6
_EMBEDDING_DEVIATION = 0.02


class RmsNorm(nnx.Module):
    """Values over their root mean square, times a learned factor per channel; computed in float32."""

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones(width, jnp.float32))

    def __call__(self, values: jax.Array) -> jax.Array:
        """Return the normalized values in their type."""
        exact = values.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.mean(jnp.square(exact), axis=-1, keepdims=True) + _EPSILON)
        return (exact * inverse * self.scale[...]).astype(values.dtype)


class GptBlock(nnx.Module):
    """Causal self-attention and a two-layer network, each of normalized values and added to its input.

    What leads back to the stream of values starts smaller by the root of the number of such layers, so that the
    stream of a deep model starts at the size of a shallow one's (Radford et al., 2019).
    """

    def __init__(
        self, width: int, heads: int, filter_width: int, layers: int, *, swiglu: bool, dtype: DType, rngs: nnx.Rngs
    ) -> None:
        def linear(inputs: int, outputs: int, gain: float = 1.0) -> Linear:
            return Linear(inputs, outputs, use_bias=False, dtype=dtype, kernel_init=scaled(gain), rngs=rngs)

        back = 1 / (2 * layers)
        self.query, self.key, self.value = (linear(width, width) for _ in range(3))
        self.join = linear(width, width, back)
        self.widen, self.narrow = linear(width, filter_width), linear(filter_width, width, back)
        if swiglu:
            self.gate = linear(width, filter_width)
        self.attention_norm, self.network_norm = RmsNorm(width), RmsNorm(width)
        self.heads, self.swiglu = heads, swiglu

    def attend(self, values: jax.Array) -> jax.Array:
        """Return the attention of each position to itself and those before it, by rotated queries and keys."""
        shape = (*values.shape[:2], self.heads, -1)
        query, key, value = (layer(values).reshape(shape) for layer in (self.query, self.key, self.value))
        seen = attend_backwards(rotate(query), rotate(key), value)
        return self.join(seen.reshape(values.shape))

    def transform(self, values: jax.Array) -> jax.Array:
        """Apply the two-layer network at every position."""
        wide = self.widen(values)
        return self.narrow(nnx.silu(self.gate(values)) * wide if self.swiglu else nnx.gelu(wide))


class Gpt(nnx.Module):
    """Embeddings, ``layers`` blocks, a last normalization, and outputs by the embeddings (``tied``) or by a layer."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        heads: int,
        filter_width: int,
        layers: int,
        *,
        swiglu: bool,
        tied: bool,
        rate: float,
        dtype: DType,
        rngs: nnx.Rngs,
    ) -> None:
        self.embed = Embedding(vocabulary, width, _EMBEDDING_DEVIATION, dtype=dtype, rngs=rngs)
        self.blocks = nnx.List(
            GptBlock(width, heads, filter_width, layers, swiglu=swiglu, dtype=dtype, rngs=rngs) for _ in range(layers)
        )
        self.norm = RmsNorm(width)
        if not tied:
            self.output = Embedding(vocabulary, width, _EMBEDDING_DEVIATION, dtype=dtype, rngs=rngs)
        self.tied, self.rate = tied, rate

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits of the next token at every position."""

        def drop(values: jax.Array, stream: int) -> jax.Array:
            return dropout(values, self.rate, train=train, key=key, stream=stream)

        values = drop(self.embed(inputs), 0)
        for index, block in enumerate(self.blocks):
            values = values + drop(block.attend(block.attention_norm(values)), 2 * index + 1)
            values = values + drop(block.transform(block.network_norm(values)), 2 * index + 2)
        return (self.embed if self.tied else self.output).scores(self.norm(values))


def rotate(values: jax.Array) -> jax.Array:
    """Return values whose channel pairs (c, c + half) are turned by their position times a rate (Su et al., 2021).

    Axes: example, position, head, channel. Wavelengths go from 2π to 10,000·2π positions.
    """
    half = values.shape[-1] // 2
    rates = _LONGEST_WAVE ** (-jnp.arange(half) / half)
    angles = jnp.arange(values.shape[1])[:, None, None] * rates
    cos, sin = (function(angles).astype(values.dtype) for function in (jnp.cos, jnp.sin))
    first, second = values[..., :half], values[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
