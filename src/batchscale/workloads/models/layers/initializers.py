"""Initial values of parameters: uniform, of the right variance, from cheap random bits.

The normal initializers of ``jax.random`` take four times as long to compile, for every layer of every model, and a
model is compiled once for every batch size. The distribution's shape makes no difference that the paper speaks of.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from batchscale.workloads.random_bits import random_bits

Initializer = Callable[[jax.Array, tuple[int, ...], DTypeLike], jax.Array]


def uniform(deviation: float) -> Initializer:
    """Values of mean 0 and this standard deviation."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> jax.Array:
        bits = random_bits(key, 0, shape) >> 8
        centred = (bits.astype(jnp.float32) + 0.5) * 2.0**-23 - 1
        return jnp.asarray(centred * (math.sqrt(3) * deviation), dtype)

    return init


def scaled(gain: float) -> Initializer:
    """Values of variance ``gain`` over the number of inputs that one output sums: 1 keeps the size of a signal."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> jax.Array:
        return uniform(math.sqrt(gain / math.prod(shape[:-1])))(key, shape, dtype)

    return init


def before_relu() -> Initializer:
    """Values of variance 2 over the inputs: keeps the size of a signal that goes through ReLU (He et al., 2015)."""
    return scaled(2.0)


def before_output() -> Initializer:
    """Values of variance 1 over the inputs."""
    return scaled(1.0)


def between(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32) -> jax.Array:
    """Values of variance 2 over inputs plus outputs of a matrix or convolution (Glorot and Bengio, 2010)."""
    *window, inputs, outputs = shape
    return uniform(math.sqrt(2 / (math.prod(window) * (inputs + outputs))))(key, shape, dtype)
