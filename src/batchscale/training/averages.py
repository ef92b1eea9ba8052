"""Exponential averages of a trial's weights, several half-lives at once. They are what is evaluated.

After step t the average of half-life h is the mean of the weights after each step up to t, weighted by ½^(age/h). The
weights of the start are no part of it. Of several steps in a row only the last one's weights are read, and count for
all: at most a 32nd of the shortest half-life, and of the steps so far. Statistics of batch normalisation are averaged
with the weights that they belong to.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.spec.goal import Goal
from batchscale.spec.horizon_free import UPDATES_PER_HALF_LIFE, average_interval, name_average
from batchscale.training.state import NOT_DIVERGED, TrialState

Average = Callable[[TrialState, TrialState], TrialState]
"""(state or population before a step, after it) → the same with its averages."""


def make_average(half_lives: Sequence[float], alone: bool) -> Average:
    """Return the update of the averages; ``alone``: of one trial, otherwise of all slots of a population."""
    if not half_lives:
        return lambda _before, after: after
    most = average_interval(half_lives)
    rates = jnp.asarray([-math.log(2) / half_life for half_life in half_lives], jnp.float32)

    def add(averages: Any, weights: Any, step: jax.Array, every: jax.Array, due: jax.Array) -> Any:
        # (1 - decay^every) / (1 - decay^step): the share of the last steps in all steps; that of the first step is 1
        shares = jnp.expm1(rates * every.astype(jnp.float32)) / jnp.expm1(
            rates * jnp.maximum(step, 1).astype(jnp.float32)
        )

        def blend(average: jax.Array, new: jax.Array) -> jax.Array:
            share = shares.reshape(-1, *(1 for _ in new.shape))
            return jnp.where(due, average + share * (new[None] - average), average)

        return jax.tree.map(blend, averages, weights)

    def average(before: TrialState, after: TrialState) -> TrialState:
        every = _steps_since_update(after.step, most)
        due = (after.step != before.step) & (after.diverged_at == NOT_DIVERGED) & (after.step % every == 0)
        update = add if alone else jax.vmap(add)
        arguments = after.averages, (after.params, after.model_state), after.step, every, due
        if most == 1:
            return after._replace(averages=update(*arguments))
        return after._replace(averages=jax.lax.cond(jnp.any(due), update, lambda averages, *_: averages, *arguments))

    return average


def _steps_since_update(step: jax.Array, most: int) -> jax.Array:
    """Return the steps between the updates around a step: the largest power of two up to a 32nd of the steps before.

    They double at multiples of themselves, so that an update at this step is that many steps after the one before.
    """
    share = jnp.maximum((step - 1) // UPDATES_PER_HALF_LIFE, 1)
    return jnp.minimum(jnp.int32(1) << (31 - jax.lax.clz(share)), most)


def over_averages(function: Callable[[TrialState], Any], state: TrialState) -> Any:
    """Return the results of a function for each average, one after the other, along a leading axis.

    A state without averages has one result: that of its own weights.
    """
    if not state.averages:
        return jax.tree.map(lambda leaf: leaf[None], function(state))
    return jax.lax.map(lambda of: function(state._replace(params=of[0], model_state=of[1])), state.averages)


def select_average(values: Mapping[str, NDArray[np.float32]], goal: Goal, number: int | None) -> dict[str, float]:
    """Return a measurement from the values of every average: all metrics of one of them.

    It is the average of this number, from 0, or the one that is best by the goal's metric. The values of each average
    on the goal's split follow under names of their own.
    """
    if all(len(array) == 1 for array in values.values()):
        return {name: float(array[0]) for name, array in values.items()}
    if number is None:
        ranked = np.nan_to_num(values[goal.metric] * (-1 if goal.maximize else 1), nan=np.inf)
        number = int(np.argmin(ranked))
    row = {name: float(array[number]) for name, array in values.items()}
    for name, array in values.items():
        if name.startswith(f"{goal.split}/"):
            row |= {name_average(name, count): float(value) for count, value in enumerate(array, 1)}
    return row
