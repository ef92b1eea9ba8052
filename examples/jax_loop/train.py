"""A JAX loop of one's own, measured by batchscale: a small network fits a sine.

``python train.py`` alone is a dry run that prints.
"""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from batchscale import trial

run = trial.start(learning_rate=0.1, batch_size=32, max_steps=200, every=20)


def start_parameters(key: jax.Array) -> dict[str, jax.Array]:
    """The network's parameters at step 0."""
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (1, 32)),
        "b1": jnp.zeros(32),
        "w2": jax.random.normal(second, (32, 1)) / 6,
        "b2": jnp.zeros(1),
    }


def loss_of(parameters: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """The mean squared error against the sine."""
    hidden = jnp.tanh(inputs @ parameters["w1"] + parameters["b1"])
    return jnp.mean((hidden @ parameters["w2"] + parameters["b2"] - jnp.sin(3 * inputs)) ** 2)


@partial(jax.jit, donate_argnums=0)
def train_step(parameters: dict[str, jax.Array], key: jax.Array) -> dict[str, jax.Array]:
    """One step of gradient descent on a batch drawn with this key."""
    inputs = jax.random.uniform(key, (run.batch_size, 1), minval=-1, maxval=1)
    gradient = jax.grad(loss_of)(parameters, inputs)
    return jax.tree.map(lambda value, slope: value - run["learning_rate"] * slope, parameters, gradient)


def main() -> None:
    """Train, measure, save."""
    key = jax.random.key(run.seed)
    parameters = start_parameters(key)

    def load(folder: Path) -> None:
        with np.load(folder / "parameters.npz") as found:
            parameters.update({name: jnp.asarray(found[name]) for name in found})

    def save(folder: Path) -> None:
        np.savez(folder / "parameters.npz", **{name: np.asarray(value) for name, value in parameters.items()})

    start = run.restore(load) or 0
    grid = jnp.linspace(-1, 1, 201)[:, None]
    for step, batch_key in run.steps(partial(jax.random.fold_in, key), start=start, save=save):
        parameters.update(train_step(dict(parameters), batch_key))
        if run.due(step):
            run.report(step, {"val/loss": loss_of(parameters, grid)})


main()
