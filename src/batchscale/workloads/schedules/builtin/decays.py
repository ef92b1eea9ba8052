"""The schedules that decay by a formula (paper, appendix C), and the one that never does.

With initial learning rate ``h``, decay factor ``a``, decay steps ``T``: the learning rate at step ``t`` is ``d(t)·h``
up to ``T`` and ``a·h`` after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from batchscale.workloads.schedules.declaration import (
    DECAY_STEPS,
    END_FACTOR,
    POWER,
    ScheduleDeclaration,
    decay_steps_range,
    end_factor_range,
    power_range,
)

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.workload import Metaparameters, Schedule

    Decay = Callable[[jax.Array, jax.Array, Metaparameters], jax.Array]

_DECAY = {END_FACTOR: end_factor_range, DECAY_STEPS: decay_steps_range}
_POWER_DECAY = {**_DECAY, POWER: power_range}


def _constant(step: jax.Array, values: Metaparameters) -> jax.Array:
    del step
    return values["learning_rate"]


def _linear(x: jax.Array, a: jax.Array, _: Metaparameters) -> jax.Array:
    return 1 - (1 - a) * x


def _cosine(x: jax.Array, a: jax.Array, _: Metaparameters) -> jax.Array:
    import jax.numpy as jnp

    return a + (1 - a) / 2 * (1 + jnp.cos(jnp.pi * x))


def _exponential_polynomial(x: jax.Array, a: jax.Array, values: Metaparameters) -> jax.Array:
    return a + (1 - a) * (1 - x) ** values[POWER]


def _inverse_exponential_polynomial(x: jax.Array, a: jax.Array, values: Metaparameters) -> jax.Array:
    return a / (a + (1 - a) * x ** values[POWER])


def _exponential(x: jax.Array, a: jax.Array, _: Metaparameters) -> jax.Array:
    return a**x


def _rate(decay: Decay) -> Schedule:
    def schedule(step: jax.Array, values: Metaparameters) -> jax.Array:
        import jax.numpy as jnp

        # Past T every decay function stands at its value for T, which is the decay factor.
        part = jnp.minimum(step / values[DECAY_STEPS], 1.0)
        return values["learning_rate"] * decay(part, values[END_FACTOR], values)

    return schedule


CONSTANT = ScheduleDeclaration("constant", {}, _constant)
LINEAR = ScheduleDeclaration("linear", _DECAY, _rate(_linear))
COSINE = ScheduleDeclaration("cosine", _DECAY, _rate(_cosine))
EXPONENTIAL = ScheduleDeclaration("exponential", _DECAY, _rate(_exponential))
EXPONENTIAL_POLYNOMIAL = ScheduleDeclaration("exponential_polynomial", _POWER_DECAY, _rate(_exponential_polynomial))
INVERSE_EXPONENTIAL_POLYNOMIAL = ScheduleDeclaration(
    "inverse_exponential_polynomial", _POWER_DECAY, _rate(_inverse_exponential_polynomial)
)
