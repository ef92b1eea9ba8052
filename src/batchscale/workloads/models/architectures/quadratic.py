"""The noisy quadratic model: its parameters are its outputs, and its loss is a quadratic form of them."""

import jax
import jax.numpy as jnp

from batchscale.workloads.metric_facts import TASK_METRICS
from batchscale.workloads.noisy_quadratic import NoisyQuadratic
from batchscale.workloads.tasks import Task
from batchscale.workloads.workload import Batch, Loss, LossSum, Metaparameters, Metric, Model, ModelState, Params


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


def quadratic_loss(problem: NoisyQuadratic) -> Loss:
    """The loss whose gradient is ``h·θ`` plus the noise of the batch, weighted by the examples it stands for."""
    h = problem.curvatures

    def loss(outputs: jax.Array, batch: Batch, values: Metaparameters) -> LossSum:
        del values
        means = _exact(outputs, jnp.asarray(h, jnp.float32)) + jnp.sum(outputs * batch["inputs"], axis=-1)
        weights = batch["num_examples"]
        return LossSum(jnp.sum(weights * means), jnp.sum(weights))

    return loss


def quadratic_metrics(problem: NoisyQuadratic) -> tuple[Metric, ...]:
    """The exact loss ``½ Σ h θ²``, without noise."""
    h = problem.curvatures

    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        del batch
        return jnp.sum(weights * _exact(outputs, jnp.asarray(h, jnp.float32))), jnp.sum(weights)

    ((name, maximize),) = TASK_METRICS[Task.QUADRATIC].items()
    return (Metric(name, maximize, measure, lambda sums: sums[0] / sums[1]),)


def _exact(outputs: jax.Array, h: jax.Array) -> jax.Array:
    return 0.5 * jnp.sum(h * jnp.square(outputs), axis=-1)
