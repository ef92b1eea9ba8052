"""Cheap random bits for dropout and initial values: a hash of a counter and a key.

Threefry, the default of ``jax.random``, costs more than the matrix products of a small model on a CPU, and the
``rbg`` generators give a population other bits than a trial on its own. A hash of (element, key) is elementwise: it
is the same under ``vmap`` as in a loop and the same on every backend.
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp

_FIRST_EXAMPLE: contextvars.ContextVar[jax.Array | int] = contextvars.ContextVar("first_example", default=0)


@contextlib.contextmanager
def examples_from(first: jax.Array | int) -> Iterator[None]:
    """Treat rows of traced arrays as those of the whole batch from ``first`` on, for a microbatch."""
    token = _FIRST_EXAMPLE.set(first)
    try:
        yield
    finally:
        _FIRST_EXAMPLE.reset(token)


def _mix(bits: jax.Array) -> jax.Array:
    """Apply a bijection of 32-bit words in which every input bit changes every output bit about half of the time."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
    return bits ^ (bits >> 16)


def key_words(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return two 32-bit words of a random key, typed or raw."""
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return data[..., 0].astype(jnp.uint32), data[..., -1].astype(jnp.uint32)


def random_bits(key: jax.Array, stream: int, shape: tuple[int, ...]) -> jax.Array:
    """Return uniform 32-bit words. ``stream`` separates the uses of one key, such as the layers of a model.

    The first axis is the example. Its number in the batch goes into the hash, see ``examples_from``.
    """
    first, second = key_words(key)
    counter = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    counter += jnp.asarray(_FIRST_EXAMPLE.get(), jnp.uint32) * jnp.uint32(math.prod(shape[1:]) % 2**32)
    start = _mix(first ^ _mix(jnp.uint32(stream) + jnp.uint32(0x9E3779B9)))
    return _mix(_mix(counter ^ start) + _mix(second ^ start))


def keep_mask(key: jax.Array, stream: int, shape: tuple[int, ...], rate: float) -> jax.Array:
    """True with probability ``1 - rate`` (to 24 bits), for dropout.

    The square roots change nothing in the comparison. They are there because XLA never computes one twice: without,
    it computes the hash anew for every weight that a unit's gradient goes to, which doubled a step at batch size 1.
    """
    uniform = (random_bits(key, stream, shape) >> 8).astype(jnp.int32).astype(jnp.float32)
    return jnp.sqrt(uniform) >= math.sqrt(rate * 2**24)


def dropout(values: jax.Array, rate: float, *, train: bool, key: jax.Array, stream: int) -> jax.Array:
    """Return the values with a part of ``rate`` set to 0 and the others scaled up; unchanged in evaluation.

    ``stream`` is the number of the place in the model, so that no two places drop the same units.
    """
    if not train or rate == 0:
        return values
    is_kept = keep_mask(key, stream, values.shape, rate)
    return jnp.where(is_kept, values / (1 - rate), jnp.zeros((), values.dtype))
