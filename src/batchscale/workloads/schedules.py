"""The learning rate schedules of the paper's appendix C, as pure functions of the step and the metaparameters.

With initial learning rate ``h``, decay factor ``a``, decay steps ``T``: the learning rate at step ``t`` is ``d(t)·h``
up to ``T`` and ``a·h`` after it.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from batchscale.workloads.schedule_facts import DECAY_STEPS, END_FACTOR, POWER, Points, ScheduleFacts
from batchscale.workloads.workload import Metaparameters, Schedule

Decay = Callable[[jax.Array, jax.Array, Metaparameters], jax.Array]


def _linear(x: jax.Array, a: jax.Array, _: Metaparameters) -> jax.Array:
    return 1 - (1 - a) * x


def _cosine(x: jax.Array, a: jax.Array, _: Metaparameters) -> jax.Array:
    return a + (1 - a) / 2 * (1 + jnp.cos(jnp.pi * x))


def _exponential_polynomial(x: jax.Array, a: jax.Array, values: Metaparameters) -> jax.Array:
    return a + (1 - a) * (1 - x) ** values[POWER]


def _inverse_exponential_polynomial(x: jax.Array, a: jax.Array, values: Metaparameters) -> jax.Array:
    return a / (a + (1 - a) * x ** values[POWER])


def _exponential(x: jax.Array, a: jax.Array, _: Metaparameters) -> jax.Array:
    return a**x


_DECAYS: Mapping[str, Decay] = {
    "linear": _linear,
    "cosine": _cosine,
    "exponential_polynomial": _exponential_polynomial,
    "inverse_exponential_polynomial": _inverse_exponential_polynomial,
    "exponential": _exponential,
}


def make_schedule(facts: ScheduleFacts) -> Schedule:
    """The schedule as a function of the step (0 for the first) and the metaparameters."""
    if facts.points is not None:
        return _piecewise_linear(facts.points)
    if facts.name == "constant":
        return lambda _, values: values["learning_rate"]
    decay = _DECAYS[facts.name]

    def schedule(step: jax.Array, values: Metaparameters) -> jax.Array:
        # Past T every decay function stands at its value for T, which is the decay factor.
        part = jnp.minimum(step / values[DECAY_STEPS], 1.0)
        return values["learning_rate"] * decay(part, values[END_FACTOR], values)

    return schedule


def _piecewise_linear(points: Points) -> Schedule:
    def schedule(step: jax.Array, values: Metaparameters) -> jax.Array:
        scale = values[DECAY_STEPS] if points.fractions else 1.0
        times = jnp.asarray(points.times, jnp.float32) * scale
        factor = jnp.interp(jnp.asarray(step, jnp.float32), times, jnp.asarray(points.factors, jnp.float32))
        return values["learning_rate"] * factor

    return schedule
