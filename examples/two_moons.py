"""A workload of your own: a Flax NNX module on arrays. Run it with examples/two_moons.toml."""

import jax
import numpy as np
from flax import nnx

import batchscale


def draw_moons(count: int, seed: int) -> dict[str, np.ndarray]:
    """Two half circles that reach into each other, with noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, size=count)
    angles = random.uniform(0, np.pi, size=count)
    side = 1 - 2 * labels
    points = np.stack([labels + side * np.cos(angles), labels / 2 + side * np.sin(angles)], axis=1)
    return {"inputs": points + random.normal(0, 0.15, size=points.shape), "labels": labels}


class Net(nnx.Module):
    """Two hidden layers, batch normalization and dropout: all as Flax has them."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(2, 32, rngs=rngs)
        self.norm = nnx.BatchNorm(32, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(32, 2, rngs=rngs)

    def __call__(self, points: jax.Array) -> jax.Array:
        """The scores of the two moons."""
        return self.second(self.drop(nnx.relu(self.norm(self.first(points)))))


batchscale.register_workload(
    "two_moons/net",
    data={"train": draw_moons(2000, seed=0), "val": draw_moons(500, seed=1)},
    model=Net,
    task="classification",
)
