"""The compiled training loop: many steps of a whole population per dispatch, no Python in between.

The number of steps is an argument, so that a chunk of any length runs the same program. The slots of a population are
fixed when it is compiled; which trial sits in a slot, and whether it moves, is data.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.training.devices import ALONG_EXAMPLES, AXIS, EVERYWHERE, Devices
from batchscale.training.order import batch_indices
from batchscale.training.state import TrialState, noise_key
from batchscale.training.step import StepConfig, is_alive, make_step
from batchscale.training.step_sums import Fetch
from batchscale.workloads.workload import ArraySplit, Batch, SampledSplit, Split, Workload

Advance = Callable[[TrialState, NDArray[np.int32], Any, np.int32], TrialState]
"""(population, until step of each slot, training data, number of steps) → population; the first is consumed."""


def make_advance(workload: Workload, config: StepConfig, slots: int, devices: Devices) -> Advance:
    """The compiled program that advances all slots by up to a number of steps.

    Its training data is what ``workload.dataset`` stores: the arrays on every device, nothing for sampled data, and for
    a set that is read on the host the fed batches with leading axes slot and step, of which each device has its rows.
    """
    step = make_step(workload, config, alone=slots == 1)
    train = workload.dataset.splits["train"]
    fed = config.fed

    def one(state: TrialState, until: jax.Array, data: Any) -> TrialState:
        return step(state, _make_fetch(train, config, state, data), is_alive(state, until))

    def advance(population: TrialState, until: jax.Array, data: Any, num_steps: jax.Array) -> TrialState:
        def at(i: jax.Array) -> Any:
            return jax.tree.map(lambda leaf: leaf[:, i], data) if fed else data

        def together(i: jax.Array, population: TrialState) -> TrialState:
            moved: TrialState = jax.vmap(one, in_axes=(0, 0, 0 if fed else None))(population, until, at(i))
            return moved

        def goes_on(carry: tuple[jax.Array, TrialState]) -> jax.Array:
            return (carry[0] < num_steps) & is_alive(carry[1], until[0])

        def alone(carry: tuple[jax.Array, TrialState]) -> tuple[jax.Array, TrialState]:
            i, state = carry
            return i + 1, one(state, until[0], _squeeze(at(i)) if fed else data)

        later: TrialState
        if slots == 1:  # a population of one compiles to exactly the program of a trial alone
            _, state = jax.lax.while_loop(goes_on, alone, (jnp.int32(0), _squeeze(population)))
            later = jax.tree.map(lambda leaf: leaf[None], state)
        else:
            later = jax.lax.fori_loop(jnp.int32(0), num_steps, together, population)
        return later

    specs = (EVERYWHERE, EVERYWHERE, ALONG_EXAMPLES if fed else EVERYWHERE, EVERYWHERE)
    return jax.jit(devices.on_each(advance, specs), donate_argnums=0)


def _make_fetch(train: Split, config: StepConfig, state: TrialState, data: Any) -> Fetch:
    if isinstance(train, SampledSplit):
        batch = train.sample(jax.random.fold_in(noise_key(state), 0x5A), config.batch_size)
        return lambda start, size: batch if size == config.batch_size else _slice(batch, start, size)
    if config.fed:
        here = 0 if config.shards is None else jax.lax.axis_index(AXIS) * config.shards.rows_per_device
        return lambda start, size: _slice(data, start - here, size)
    assert isinstance(train, ArraySplit)
    num_examples = train.num_examples

    def take(wanted: jax.Array) -> Batch:
        return {name: leaf.at[wanted].get(mode="promise_in_bounds") for name, leaf in data.items()}

    if config.shards is not None:  # a device works out the places of its own examples alone
        return lambda start, size: take(
            batch_indices(state.order_key, state.epoch, state.offset + start, size, num_examples)
        )
    indices = batch_indices(state.order_key, state.epoch, state.offset, config.batch_size, num_examples)
    return lambda start, size: take(jax.lax.dynamic_slice_in_dim(indices, start, size))


def _slice(batch: Batch, start: jax.Array | int, size: int) -> Batch:
    return {name: jax.lax.dynamic_slice_in_dim(leaf, start, size) for name, leaf in batch.items()}


def _squeeze(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def make_enter(devices: Devices) -> Callable[[TrialState, TrialState, np.int32], TrialState]:
    """The compiled program that puts a trial's state into a slot; the population is consumed."""

    def enter(population: TrialState, member: TrialState, slot: jax.Array) -> TrialState:
        def put(leaf: jax.Array, new: jax.Array) -> Any:
            return jax.lax.dynamic_update_index_in_dim(leaf, new, slot, 0)

        filled: TrialState = jax.tree.map(put, population, member)
        return filled

    return jax.jit(devices.on_each(enter, (EVERYWHERE, EVERYWHERE, EVERYWHERE)), donate_argnums=0)


def take_member(population: TrialState, slot: jax.Array | np.int32) -> TrialState:
    """The state of the trial in a slot."""
    member: TrialState = jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, slot, 0, keepdims=False), population
    )
    return member
