"""The compiled training loop: many steps of a whole population per call of the device, no Python in between.

A step is written for one trial and mapped over the slots of a population; a trial that is not alive (finished,
diverged, or an empty slot) goes through it unchanged. The number of steps is an argument, so that a chunk of any length
runs the same program. The slots of a population are fixed when it is compiled; the trial in a slot is data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from batchscale.spec.horizon_free import Branches
from batchscale.training.averages import make_average
from batchscale.training.branches import annealing_factor
from batchscale.training.devices import ALONG_EXAMPLES, AXIS, EVERYWHERE, Devices, Shards
from batchscale.training.gradients import Fetch, make_gradients
from batchscale.training.order import batch_indices
from batchscale.training.state import NOT_DIVERGED, TrialState, noise_key, put_member
from batchscale.workloads.update import ANNEALING
from batchscale.workloads.workload import ArraySplit, Batch, Params, SampledSplit, Split, Workload

Advance = Callable[[TrialState, NDArray[np.int32], Any, np.int32], TrialState]
"""(population, until step of each slot, training data, number of steps) → population; the first is consumed."""

Train = Callable[[TrialState, jax.Array, Any, jax.Array], TrialState]
"""The same inside of a program."""


@dataclass(frozen=True)
class StepConfig:
    """The constants of a compiled step. ``num_examples`` is None for sampled data.

    A ``batch_size`` that is an argument of the program is a multiple of ``microbatch``.
    ``shards`` are the parts of the batch on several devices, of which each takes ``microbatch`` examples at a time;
    ``fed`` is True if batches are read on the host. ``half_lives`` are those of the averages of the weights, in steps.
    ``branches`` is set if the learning rate is annealed on branches.
    """

    batch_size: int | jax.Array
    microbatch: int
    num_examples: int | None
    shards: Shards | None = None
    fed: bool = False
    half_lives: tuple[float, ...] = ()
    branches: Branches | None = None


def make_advance(workload: Workload, config: StepConfig, slots: int, devices: Devices) -> Advance:
    """Return the compiled program that advances all slots by up to a number of steps.

    Its training data is what ``workload.dataset`` stores: the arrays on every device, nothing for sampled data, and for
    a set that is read on the host the fed batches with leading axes slot and step, of which each device has its rows.
    """
    specs = (EVERYWHERE, EVERYWHERE, ALONG_EXAMPLES if config.fed else EVERYWHERE, EVERYWHERE)
    return jax.jit(devices.on_each(make_train(workload, config, slots), specs), donate_argnums=0)


def make_train(workload: Workload, config: StepConfig, slots: int) -> Train:
    """Return the function that advances all slots by up to a number of steps, to be compiled."""
    step = make_step(workload, config, alone=slots == 1)
    average = make_average(config.half_lives, alone=slots == 1)
    dataset = workload.dataset.splits["train"]
    fed = config.fed

    def advance_trial(state: TrialState, until: jax.Array, data: Any) -> TrialState:
        return step(state, _make_fetch(dataset, config, state, data), is_alive(state, until))

    def train(population: TrialState, until: jax.Array, data: Any, num_steps: jax.Array) -> TrialState:
        def at(i: jax.Array) -> Any:
            return jax.tree.map(lambda leaf: leaf[:, i], data) if fed else data

        def together(i: jax.Array, population: TrialState) -> TrialState:
            moved: TrialState = jax.vmap(advance_trial, in_axes=(0, 0, 0 if fed else None))(population, until, at(i))
            return average(population, moved)

        def continues(carry: tuple[jax.Array, TrialState]) -> jax.Array:
            return (carry[0] < num_steps) & is_alive(carry[1], until[0])

        def alone(carry: tuple[jax.Array, TrialState]) -> tuple[jax.Array, TrialState]:
            i, state = carry
            return i + 1, average(state, advance_trial(state, until[0], _squeeze(at(i)) if fed else data))

        later: TrialState
        if slots == 1:  # a population of one compiles to exactly the program of a trial alone
            _, state = jax.lax.while_loop(continues, alone, (jnp.int32(0), _squeeze(population)))
            later = jax.tree.map(lambda leaf: leaf[None], state)
        else:
            later = jax.lax.fori_loop(jnp.int32(0), num_steps, together, population)
        return later

    return train


def make_step(
    workload: Workload, config: StepConfig, alone: bool
) -> Callable[[TrialState, Fetch, jax.Array], TrialState]:
    """Return the function that takes one step if ``alive``, and otherwise returns the state unchanged.

    ``alone``: the caller ends the loop when the trial is no longer alive, so that the optimizer's state need not be
    kept for idle steps; that of a diverged trial is lost. This saves a pass over it and a copy of it.
    """
    gradients = make_gradients(workload, config.batch_size, config.microbatch, config.shards)

    def step(state: TrialState, fetch: Fetch, alive: jax.Array) -> TrialState:
        loss, grads, model_state = gradients(state, fetch, noise_key(state))
        # The choice waits for the whole gradient and not for the new parameters: XLA then updates in place. Without the
        # first it copies weights that the backward pass reads, in each step; with the second it keeps both versions of
        # everything (decision 0250).
        moved = alive & (loss <= state.loss_limit) & ~_has_nan(grads)  # a NaN loss compares false
        keep = _chooser(moved)
        values = dict(state.metaparameters)
        if config.branches is not None:
            values[ANNEALING] = annealing_factor(config.branches, state)
        update = workload.make_update(values)
        updates, opt_state = update.update(grads, state.opt_state, state.params)
        params = keep(optax.apply_updates(state.params, updates), state.params)
        sound = moved & _all_finite(params, loss)
        epoch, offset = _next_position(state, config)
        return state._replace(
            params=params,
            model_state=keep(model_state, state.model_state),
            opt_state=opt_state if alone else _chooser(sound)(opt_state, state.opt_state),
            epoch=jnp.where(moved, epoch, state.epoch),
            offset=jnp.where(moved, offset, state.offset),
            step=state.step + alive.astype(jnp.int32),
            last_loss=jnp.where(alive, loss, state.last_loss),
            diverged_at=jnp.where(alive & ~sound, state.step + 1, state.diverged_at),
        )

    return step


def is_alive(state: TrialState, until: jax.Array) -> jax.Array:
    """Return True for a trial that has steps left before ``until`` and has not diverged."""
    return (state.step < until) & (state.diverged_at == NOT_DIVERGED)


def make_enter(devices: Devices) -> Callable[[TrialState, TrialState, np.int32], TrialState]:
    """Return the compiled program that puts a trial's state into a slot; the population is consumed."""

    def enter(population: TrialState, member: TrialState, slot: jax.Array) -> TrialState:
        return put_member(population, member, slot)

    return jax.jit(devices.on_each(enter, (EVERYWHERE, EVERYWHERE, EVERYWHERE)), donate_argnums=0)


def _make_fetch(train: Split, config: StepConfig, state: TrialState, data: Any) -> Fetch:
    if isinstance(train, SampledSplit):
        assert isinstance(config.batch_size, int)
        batch = train.sample(jax.random.fold_in(noise_key(state), 0x5A), config.batch_size)
        return lambda start, size: batch if size == config.batch_size else _slice(batch, start, size)
    if config.fed:
        first = 0 if config.shards is None else jax.lax.axis_index(AXIS) * config.shards.rows_per_device
        return lambda start, size: _slice(data, start - first, size)
    assert isinstance(train, ArraySplit)
    num_examples = train.num_examples

    def take(indices: jax.Array) -> Batch:
        return {name: leaf.at[indices].get(mode="promise_in_bounds") for name, leaf in data.items()}

    if config.shards is not None or not isinstance(config.batch_size, int):  # the indices of a part alone
        return lambda start, size: take(
            batch_indices(state.order_key, state.epoch, state.offset + start, size, num_examples)
        )
    indices = batch_indices(state.order_key, state.epoch, state.offset, config.batch_size, num_examples)
    return lambda start, size: take(jax.lax.dynamic_slice_in_dim(indices, start, size))


def _slice(batch: Batch, start: jax.Array | int, size: int) -> Batch:
    return {name: jax.lax.dynamic_slice_in_dim(leaf, start, size) for name, leaf in batch.items()}


def _squeeze(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _next_position(state: TrialState, config: StepConfig) -> tuple[jax.Array, jax.Array]:
    if config.num_examples is None:
        return state.epoch, state.offset
    after = state.offset + config.batch_size
    return state.epoch + after // config.num_examples, after % config.num_examples


def _chooser(flag: jax.Array) -> Callable[[Any, Any], Any]:
    def choose(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)

    return choose


def _has_nan(grads: Params) -> jax.Array:
    """Return True if a bias or scale has a NaN gradient in its first entry: a few numbers that need the whole gradient.

    Larger leaves are left out, because a choice that reads them keeps XLA from fusing them with the update.
    """
    vectors = [leaf for leaf in jax.tree.leaves(grads) if leaf.ndim == 1]
    return sum((jnp.isnan(leaf[0]) for leaf in vectors), jnp.bool_(False))


def _all_finite(params: Params, loss: jax.Array) -> jax.Array:
    """Return True if no value is infinite or NaN: zero times such a value is NaN, and so is every sum it enters.

    The sums are products with a row of zeros, which read the parameters once; XLA would compute other sums from the
    ingredients of the update. The zero is made from the loss, since XLA removes a multiplication with a constant zero.
    """
    total = jnp.float32(0)
    for leaf in jax.tree.leaves(params):
        rows = leaf.reshape(-1, leaf.shape[-1] if leaf.ndim else 1)
        total += jnp.sum(jnp.full((1, rows.shape[0]), loss * 0, leaf.dtype) @ rows)
    return jnp.equal(total, 0)
