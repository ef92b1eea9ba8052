"""One optimizer step of one trial: gradients (accumulated over microbatches), update, divergence flag. Pure.

The step is written for one trial and mapped over the slots of a population; a trial that is not alive (finished,
diverged, or an empty slot) goes through it unchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from batchscale.training.reduction import ShardedGradients
from batchscale.training.shards import Shards
from batchscale.training.state import NOT_DIVERGED, TrialState, noise_key
from batchscale.training.step_sums import Fetch, StepSums, mean_of_sums
from batchscale.workloads.workload import ModelState, Params, Workload


@dataclass(frozen=True)
class StepConfig:
    """What is fixed when a step is compiled. ``num_examples`` is None for sampled data.

    ``shards`` says how the batch lies on several devices, of which each takes ``microbatch`` examples at a time;
    ``fed`` that batches are read on the host.
    """

    batch_size: int
    microbatch: int
    num_examples: int | None
    shards: Shards | None = None
    fed: bool = False


class Gradients:
    """The mean loss of a batch, its gradient, and the changed model state, on one device."""

    def __init__(self, workload: Workload, config: StepConfig) -> None:
        self._workload = workload
        self._config = config
        self._sums = StepSums(workload, config.batch_size, config.microbatch)

    def __call__(self, state: TrialState, fetch: Fetch, key: jax.Array) -> tuple[jax.Array, Params, ModelState]:
        """The whole batch at once if it is one microbatch, otherwise summed over microbatches."""
        if self._config.microbatch >= self._config.batch_size:
            return self._whole(state, fetch, key)
        return mean_of_sums(self._sums.over(state, fetch, key, 0, self._config.batch_size))

    def _whole(self, state: TrialState, fetch: Fetch, key: jax.Array) -> tuple[jax.Array, Params, ModelState]:
        batch = self._workload.dataset.prepare(fetch(0, self._config.batch_size))

        def mean_loss(params: Params) -> tuple[jax.Array, ModelState]:
            total, (weight, model_state) = self._sums.loss_sum(params, state, batch, key)
            return total / jnp.where(weight > 0, weight, 1), model_state

        (loss, model_state), grads = jax.value_and_grad(mean_loss, has_aux=True)(state.params)
        return loss, grads, model_state


def _make_gradients(
    workload: Workload, config: StepConfig
) -> Callable[[TrialState, Fetch, jax.Array], tuple[jax.Array, Params, ModelState]]:
    if config.shards is None:
        return Gradients(workload, config)
    return ShardedGradients(StepSums(workload, config.batch_size, config.microbatch), config.shards)


def make_step(
    workload: Workload, config: StepConfig, alone: bool
) -> Callable[[TrialState, Fetch, jax.Array], TrialState]:
    """The function that takes one step where ``alive``, and otherwise gives the state back unchanged.

    ``alone``: the caller ends the loop when the trial is not alive any more, so that the optimizer's state need not be
    kept for idle steps; that of a diverged trial is lost. This saves a pass over it and a copy of it.
    """
    gradients = _make_gradients(workload, config)

    def step(state: TrialState, fetch: Fetch, alive: jax.Array) -> TrialState:
        loss, grads, model_state = gradients(state, fetch, noise_key(state))
        # The choice depends on the loss alone, which is known before the update: XLA then updates in place. A choice
        # that waits for the new parameters makes it keep both versions of everything and doubled the time of a step.
        moved = alive & (loss <= state.loss_limit)  # a NaN loss compares false
        keep = _chooser(moved)
        update = workload.make_update(state.metaparameters)
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
    """Whether the trial has steps left before ``until`` and has not diverged."""
    return (state.step < until) & (state.diverged_at == NOT_DIVERGED)


def _next_position(state: TrialState, config: StepConfig) -> tuple[jax.Array, jax.Array]:
    if config.num_examples is None:
        return state.epoch, state.offset
    after = state.offset + config.batch_size
    return state.epoch + after // config.num_examples, after % config.num_examples


def _chooser(flag: jax.Array) -> Callable[[Any, Any], Any]:
    def choose(new: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)

    return choose


def _all_finite(params: Params, loss: jax.Array) -> jax.Array:
    """Whether no value is infinite or NaN: zero times such a value is NaN, and so is every sum it enters.

    The sums are products with a row of zeros, which read the parameters once; XLA would compute other sums from the
    ingredients of the update. The zero is made from the loss, since XLA would not multiply with one that it knows.
    """
    total = jnp.float32(0)
    for leaf in jax.tree.leaves(params):
        rows = leaf.reshape(-1, leaf.shape[-1] if leaf.ndim else 1)
        total += jnp.sum(jnp.full((1, rows.shape[0]), loss * 0, leaf.dtype) @ rows)
    return jnp.equal(total, 0)
