"""Causal attention whose compiled form does not depend on how many devices a program has.

The library's softmax divides by its sums. XLA turns such a division into a product with the inverse in some programs,
and not in others, which are those of several devices: exact sums would then differ in their last bit (decision 0131).
"""

import jax
import jax.numpy as jnp

_UNSEEN = -1e38  # far below any score, and finite: a difference of two is a number


def softmax(logits: jax.Array) -> jax.Array:
    """The softmax over the last axis, by a product with the inverse of the sum.

    >>> [round(float(share), 4) for share in softmax(jnp.log(jnp.array([1.0, 2.0, 5.0])))]
    [0.125, 0.25, 0.625]
    """
    largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    powers = jnp.exp(logits - largest)
    return powers * (1 / jnp.sum(powers, axis=-1, keepdims=True))


def attend_backwards(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """What each position sees of itself and those before it; axes: example, position, head, channel.

    As ``jax.nn.dot_product_attention(query, key, value, is_causal=True)``: scores and shares are float32.
    """
    scores = jnp.einsum("etnc,esnc->ents", query, key, preferred_element_type=jnp.float32) * query.shape[-1] ** -0.5
    positions = jnp.arange(scores.shape[-1])
    seen = positions <= positions[:, None]
    shares = softmax(jnp.where(seen, scores, _UNSEEN)).astype(key.dtype)
    found: jax.Array = jnp.einsum("ents,esnc->etnc", shares, value)
    return found
