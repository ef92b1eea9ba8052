"""Branches of a trial: states that leave a trunk of constant learning rate, anneal, and are measured at their end.

The trunk is kept in the trial's state while a branch is trained, so that a trial in the middle of a branch is saved,
moved and resumed like any other. A branch at its end stays until the trial goes on: the last state of a trial has the
annealed weights.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.spec.durations import MAX_STEPS
from batchscale.spec.horizon_free import Branches, Decay
from batchscale.training.devices import EVERYWHERE, Devices
from batchscale.training.state import TrialState, put_member, take_member

_OF_TRUNK = ("params", "model_state", "opt_state", "averages", "epoch", "offset", "step", "last_loss")


class Branch(NamedTuple):
    """The steps between which a trial anneals, both beyond any step on the trunk, and the trunk that it left."""

    start: jax.Array
    end: jax.Array
    trunk: Any


def on_trunk(state: TrialState) -> TrialState:
    """Return a state that can branch, on the trunk."""
    return _leave(state, MAX_STEPS - 1, MAX_STEPS)


def annealing_factor(branches: Branches, state: TrialState) -> jax.Array:
    """Return the factor of the learning rate at the state's step: exactly 1 on the trunk."""
    start, end = state.branch.start, state.branch.end
    part = jnp.clip((state.step - start).astype(jnp.float32) / (end - start).astype(jnp.float32), 0.0, 1.0)
    fallen = {
        Decay.LINEAR: lambda: part,
        Decay.COSINE: lambda: (1 - jnp.cos(jnp.pi * part)) / 2,
        Decay.SQRT: lambda: jnp.sqrt(part),
    }[branches.shape]()
    return 1 - (1 - branches.end_factor) * fallen


def branch_end(state: TrialState, slot: int | None = None) -> int | None:
    """Return the last step of the branch that a state, or the state in a slot, is on; None on the trunk."""
    if not state.branch:
        return None
    end = int(np.asarray(state.branch.end) if slot is None else np.asarray(state.branch.end)[slot])
    return None if end == MAX_STEPS else end


Fork = Callable[[TrialState, np.int32, np.int32, np.int32], TrialState]
"""(population, slot, first and last step of the branch) → population; the first is consumed."""

Join = Callable[[TrialState, np.int32], TrialState]
"""(population, slot) → population, with the trial of the slot back on its trunk; the first is consumed."""


def make_fork(devices: Devices) -> Fork:
    """Return the compiled program that lets the trial in a slot leave its trunk."""

    def fork(population: TrialState, slot: jax.Array, start: jax.Array, end: jax.Array) -> TrialState:
        return _change(population, slot, lambda state: _leave(state, start, end))

    return jax.jit(devices.on_each(fork, (EVERYWHERE,) * 4), donate_argnums=0)


def make_join(devices: Devices) -> Join:
    """Return the compiled program that takes the trial in a slot back to its trunk."""

    def join(population: TrialState, slot: jax.Array) -> TrialState:
        return _change(population, slot, lambda state: on_trunk(state._replace(**state.branch.trunk)))

    return jax.jit(devices.on_each(join, (EVERYWHERE,) * 2), donate_argnums=0)


def _leave(state: TrialState, start: jax.Array | int, end: jax.Array | int) -> TrialState:
    trunk = {name: getattr(state, name) for name in _OF_TRUNK}
    return state._replace(branch=Branch(jnp.int32(start), jnp.int32(end), trunk))


def _change(population: TrialState, slot: jax.Array, change: Callable[[TrialState], TrialState]) -> TrialState:
    return put_member(population, change(take_member(population, slot)), slot)
