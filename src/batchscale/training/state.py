"""The state of a trial: everything that the next step depends on, as one pytree of arrays.

Three key streams start from the trial's seed (initialisation, data order, dropout and sampling each have their own), so
that changing one leaves the others. A population is the same pytree with a leading axis of slots.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.workloads.workload import Batch, Metaparameters, ModelState, Params, Workload

NOT_DIVERGED = -1

DIVERGENCE_FACTOR = 1000.0
"""A training loss above this multiple of its start is divergence."""


class TrialState(NamedTuple):
    """Parameters, model state, optimizer state, keys, position in the data, flags, and the metaparameters.

    ``epoch`` and ``offset`` are the position of the next example. ``loss_limit`` is the training loss above which the
    trial counts as diverged; ``diverged_at`` is the step at which it did, or -1. ``last_loss`` is the training loss of
    the last step's batch. ``averages`` are exponential averages of parameters and model state, with a leading axis.
    ``branch`` is a `Branch` with the trunk that it left, in a study with branches.
    """

    params: Params
    model_state: ModelState
    opt_state: Any
    metaparameters: dict[str, jax.Array]
    order_key: jax.Array
    noise_key: jax.Array
    epoch: jax.Array
    offset: jax.Array
    step: jax.Array
    loss_limit: jax.Array
    last_loss: jax.Array
    diverged_at: jax.Array
    averages: Any = ()
    branch: Any = ()


def take_member(population: TrialState, slot: jax.Array | np.int32) -> TrialState:
    """Return the state of the trial in a slot."""
    member: TrialState = jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, slot, 0, keepdims=False), population
    )
    return member


def put_member(population: TrialState, member: TrialState, slot: jax.Array) -> TrialState:
    """Return the population with a trial's state in a slot."""

    def put(leaf: jax.Array, new: jax.Array) -> Any:
        return jax.lax.dynamic_update_index_in_dim(leaf, new, slot, 0)

    filled: TrialState = jax.tree.map(put, population, member)
    return filled


def stream_keys(seed: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the keys of initialisation (typed), data order and noise (both raw words)."""
    root = jax.random.key(seed, impl="threefry2x32")
    init, order, noise = (jax.random.fold_in(root, stream) for stream in range(3))
    return init, jax.random.key_data(order), jax.random.key_data(noise)


def noise_key(state: TrialState) -> jax.Array:
    """Return the key of this step's dropout and of its sampled data."""
    return jax.random.fold_in(jax.random.wrap_key_data(state.noise_key, impl="threefry2x32"), state.step)


def init_trial(
    workload: Workload,
    seed: jax.Array,
    metaparameters: Metaparameters,
    probe: Batch,
    divergence_factor: float,
    averages: int = 0,
) -> TrialState:
    """Return the state before the first step, with so many averages of its weights.

    The loss at the start is computed on ``probe``, a fixed sample of stored training examples, and not on the first
    batch: with a batch of one example it would vary too much. A model that normalises by running statistics has none
    yet: its loss is that of training, with the statistics of the sample.
    """
    init_key, order_key, noise = stream_keys(seed)
    params, model_state = workload.model.init(init_key)
    prepared = workload.dataset.prepare(probe)
    normalises = bool(jax.tree.leaves(model_state))
    outputs, _ = workload.model.apply(params, model_state, prepared["inputs"], train=normalises, key=init_key)
    loss = workload.loss(outputs, prepared, metaparameters)
    start = loss.total / jnp.where(loss.weight > 0, loss.weight, 1)
    # A loss that may be zero or negative (a log density) has no meaningful multiple: only finiteness is checked then.
    limit = jnp.where(start > 0, start * divergence_factor, jnp.inf)
    return TrialState(
        params=params,
        model_state=model_state,
        opt_state=workload.make_update(metaparameters).init(params),
        metaparameters=dict(metaparameters),
        order_key=order_key,
        noise_key=noise,
        epoch=jnp.int32(0),
        offset=jnp.int32(0),
        step=jnp.int32(0),
        loss_limit=limit.astype(jnp.float32),
        last_loss=start.astype(jnp.float32),
        diverged_at=jnp.int32(NOT_DIVERGED),
        averages=jax.tree.map(lambda leaf: jnp.stack([leaf] * averages), (params, model_state)) if averages else (),
    )
