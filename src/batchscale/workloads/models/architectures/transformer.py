"""The decoder of the Transformer (Vaswani et al., 2017) as an autoregressive language model."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import between
from batchscale.workloads.models.layers.linear import Embedding, Linear
from batchscale.workloads.random_bits import dropout

_LONGEST_WAVE = 10_000.0


class Layer(nnx.Module):
    """Causal self-attention and a two-layer network, each added to its input and then layer-normalised."""

    def __init__(self, width: int, heads: int, filter_width: int, *, dtype: DType, rngs: nnx.Rngs) -> None:
        def linear(inputs: int, outputs: int, bias: bool) -> Linear:
            return Linear(inputs, outputs, use_bias=bias, dtype=dtype, kernel_init=between, rngs=rngs)

        self.query, self.key, self.value, self.join = (linear(width, width, False) for _ in range(4))
        self.widen, self.narrow = linear(width, filter_width, True), linear(filter_width, width, True)
        self.attention_norm, self.network_norm = (nnx.LayerNorm(width, dtype=dtype, rngs=rngs) for _ in range(2))
        self.heads = heads

    def attend(self, values: jax.Array) -> jax.Array:
        """Return the attention of each position to itself and those before it."""
        shape = (*values.shape[:2], self.heads, -1)
        query, key, value = (layer(values).reshape(shape) for layer in (self.query, self.key, self.value))
        seen = attend_backwards(query, key, value)
        return self.join(seen.reshape(values.shape))

    def transform(self, values: jax.Array) -> jax.Array:
        """Apply the two-layer network at every position."""
        return self.narrow(nnx.relu(self.widen(values)))


class Transformer(nnx.Module):
    """Embeddings with sinusoidal positions, ``layers`` layers, and outputs by the transposed embeddings.

    Dropout is where Vaswani et al. have it: on the embeddings and on what each sub-layer adds.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        heads: int,
        filter_width: int,
        layers: int,
        *,
        rate: float,
        dtype: DType,
        rngs: nnx.Rngs,
    ) -> None:
        self.embed = Embedding(vocabulary, width, width**-0.5, dtype=dtype, rngs=rngs)
        self.layers = nnx.List(Layer(width, heads, filter_width, dtype=dtype, rngs=rngs) for _ in range(layers))
        self.width, self.rate = width, rate

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits of the next token at every position."""

        def drop(values: jax.Array, stream: int) -> jax.Array:
            return dropout(values, self.rate, train=train, key=key, stream=stream)

        words = self.embed(inputs) * math.sqrt(self.width)
        values = drop(words + position_waves(inputs.shape[1], self.width).astype(words.dtype), 0)
        for index, layer in enumerate(self.layers):
            values = layer.attention_norm(values + drop(layer.attend(values), 2 * index + 1))
            values = layer.network_norm(values + drop(layer.transform(values), 2 * index + 2))
        return self.embed.scores(values)


def position_waves(length: int, width: int) -> jax.Array:
    """Return sines (even channels) and cosines (odd) of the position, with wavelengths from 2π to 10,000·2π."""
    channels = jnp.arange(width)
    rates = _LONGEST_WAVE ** (-(channels // 2 * 2) / width)
    angles = jnp.arange(length)[:, None] * rates
    return jnp.where(channels % 2 == 0, jnp.sin(angles), jnp.cos(angles))


_UNSEEN = -1e38  # far below any score, and finite: a difference of two is a number


def softmax(logits: jax.Array) -> jax.Array:
    """Return the softmax over the last axis, by a product with the inverse of the sum.

    >>> [round(float(share), 4) for share in softmax(jnp.log(jnp.array([1.0, 2.0, 5.0])))]
    [0.125, 0.25, 0.625]
    """
    largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    powers = jnp.exp(logits - largest)
    return powers * (1 / jnp.sum(powers, axis=-1, keepdims=True))


def attend_backwards(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Return the attention of each position to itself and those before it.

    Axes: example, position, head, channel.

    As ``jax.nn.dot_product_attention(query, key, value, is_causal=True)``: scores and shares are float32.
    """
    scores = jnp.einsum("etnc,esnc->ents", query, key, preferred_element_type=jnp.float32) * query.shape[-1] ** -0.5
    positions = jnp.arange(scores.shape[-1])
    visible = positions <= positions[:, None]
    shares = softmax(jnp.where(visible, scores, _UNSEEN)).astype(key.dtype)
    result: jax.Array = jnp.einsum("ents,esnc->etnc", shares, value)
    return result
