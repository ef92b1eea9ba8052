"""The noisy quadratic model as pure functions: its parameters are its outputs."""

import jax
import jax.numpy as jnp

from batchscale.noisy_quadratic import NoisyQuadratic
from batchscale.workloads.workload import Model, ModelState, Params


def quadratic_model(problem: NoisyQuadratic) -> Model:
    """A vector of parameters, each starting at one of the two points ±√(initial variance)."""

    def init(key: jax.Array) -> tuple[Params, ModelState]:
        sides = jax.random.rademacher(key, (problem.dimension,), jnp.float32)
        return {"theta": sides * problem.initial_variance**0.5}, {}

    def apply(
        params: Params, state: ModelState, inputs: jax.Array, *, train: bool, key: jax.Array
    ) -> tuple[jax.Array, ModelState]:
        del train, key
        return jnp.broadcast_to(params["theta"], (inputs.shape[0], problem.dimension)), state

    return Model("quadratic", init, apply)
