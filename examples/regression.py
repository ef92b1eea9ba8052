"""A workload of your own: pure functions, a loss of your own, and data that comes in batches."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import batchscale

WIDTH = 16


def read_batches(seed: int, batches: int) -> Iterator[dict[str, np.ndarray]]:
    """What a reader of your files could give; it is read to its end once."""
    random = np.random.default_rng(seed)
    for _ in range(batches):
        x = random.uniform(-3, 3, size=(100, 1)).astype(np.float32)
        yield {"inputs": x, "labels": (np.sin(2 * x) + random.normal(0, 0.1, size=x.shape)).astype(np.float32)}


def init(key: jax.Array) -> dict[str, jax.Array]:
    """The parameters of a network with one hidden layer."""
    first, second = jax.random.split(key)
    return {
        "in": 2 * jax.random.normal(first, (1, WIDTH)),
        "bias": jnp.zeros(WIDTH),
        "out": jax.random.normal(second, (WIDTH, 1)) / WIDTH**0.5,
    }


def apply(params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """Its outputs."""
    return jnp.tanh(inputs @ params["in"] + params["bias"]) @ params["out"]


def squared_error(outputs: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    """One value per example."""
    return jnp.sum(jnp.square(outputs - batch["labels"]), axis=-1)


def absolute_error(outputs: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    """One value per example."""
    return jnp.sum(jnp.abs(outputs - batch["labels"]), axis=-1)


batchscale.register_workload(
    "sine/small_net",
    data={"train": read_batches(0, 20), "val": read_batches(1, 5)},
    model=(init, apply),
    loss=squared_error,
    metrics={"squared_error": squared_error, "absolute_error": absolute_error},
)
