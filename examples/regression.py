"""A regression on data that need not fit in memory: read by index, with a network of pure functions."""

import jax
import jax.numpy as jnp
import numpy as np

import batchscale

WIDTH = 16


class Sine:
    """What a reader of your files could be: it says how many examples there are, and reads those that are asked for."""

    def __init__(self, seed: int, num_examples: int) -> None:
        self.seed = seed
        self.num_examples = num_examples

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """The examples at these indices; the same index gives the same example, always."""
        noise = np.array([np.random.default_rng((self.seed, int(index))).normal(0, 0.1) for index in indices])
        x = 6 * (indices * 0.6180339887498949 % 1) - 3
        return {"inputs": x[:, None], "labels": (np.sin(2 * x) + noise)[:, None]}


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


batchscale.register_workload(
    "sine/small_net", data={"train": Sine(0, 2000), "val": Sine(1, 500)}, model=(init, apply), task="regression"
)
