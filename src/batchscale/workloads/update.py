"""The whole update of a workload: L2 penalty, clipping, optimizer and schedule in one transformation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from batchscale.workloads.tunables import Tunables
from batchscale.workloads.workload import Metaparameters, Params

ANNEALING = "annealing"
"""The factor of the learning rate on a branch, which the training adds to the metaparameters."""


def make_update(tunables: Tunables) -> Callable[[Metaparameters], optax.GradientTransformation]:
    """Return the function from metaparameters to the update, to be called inside the compiled program."""
    rule, schedule = tunables.optimizer.rule, tunables.schedule.rate

    def update(values: Metaparameters) -> optax.GradientTransformation:
        def rate(step: jax.Array) -> jax.Array:
            return schedule(step, values) * values[ANNEALING] if ANNEALING in values else schedule(step, values)

        return optax.chain(*regularize(values), rule(values, rate))

    return update


def regularize(values: Metaparameters) -> tuple[optax.GradientTransformation, ...]:
    """Return the steps before the optimizer: the L2 penalty's part is added to the gradient, then it is clipped.

    The penalty is half the squared norm of all parameters times ``l2_penalty`` (equation 4). A metaparameter that is
    absent is off and costs nothing in the compiled program.
    """
    parts = []
    if "l2_penalty" in values:
        parts.append(optax.add_decayed_weights(values["l2_penalty"]))
    if "gradient_clip_norm" in values:
        parts.append(_clip_by_global_norm(values["gradient_clip_norm"]))
    return tuple(parts)


def _clip_by_global_norm(limit: jax.Array) -> optax.GradientTransformation:
    """Scale gradients to a norm of at most ``limit``; unlike optax's, also for ``inf``, which is off."""

    def update(gradients: Params, state: optax.EmptyState, params: Params = None) -> tuple[Params, optax.EmptyState]:
        del params
        norm = optax.tree.norm(gradients)
        scale = jnp.where(norm > limit, limit / norm, 1.0)
        return jax.tree.map(lambda gradient: gradient * scale, gradients), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)
