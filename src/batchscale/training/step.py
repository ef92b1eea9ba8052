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

from batchscale.training.state import NOT_DIVERGED, TrialState, noise_key
from batchscale.workloads.random_bits import examples_from
from batchscale.workloads.workload import Batch, ModelState, Params, Workload

Fetch = Callable[[jax.Array | int, int], Batch]
"""The stored examples of this step's batch from a start on, a static number of them."""


@dataclass(frozen=True)
class StepConfig:
    """What is fixed when a step is compiled. ``num_examples`` is None for sampled data."""

    batch_size: int
    microbatch: int
    num_examples: int | None


class Gradients:
    """The mean loss of a batch, its gradient, and the changed model state."""

    def __init__(self, workload: Workload, config: StepConfig) -> None:
        self._workload = workload
        self._config = config

    def __call__(self, state: TrialState, fetch: Fetch, key: jax.Array) -> tuple[jax.Array, Params, ModelState]:
        """The whole batch at once if it is one microbatch, otherwise summed over microbatches."""
        if self._config.microbatch >= self._config.batch_size:
            return self._whole(state, fetch, key)
        return self._accumulated(state, fetch, key)

    def _whole(self, state: TrialState, fetch: Fetch, key: jax.Array) -> tuple[jax.Array, Params, ModelState]:
        batch = self._workload.dataset.prepare(fetch(0, self._config.batch_size))

        def mean_loss(params: Params) -> tuple[jax.Array, ModelState]:
            total, (weight, model_state) = self._loss_sum(params, state, batch, key)
            return total / jnp.where(weight > 0, weight, 1), model_state

        (loss, model_state), grads = jax.value_and_grad(mean_loss, has_aux=True)(state.params)
        return loss, grads, model_state

    def _loss_sum(
        self, params: Params, state: TrialState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, ModelState]]:
        inputs = batch["inputs"]
        outputs, changed = self._workload.model.apply(params, state.model_state, inputs, train=True, key=key)
        changed = jax.tree.map(lambda new, old: new.astype(old.dtype), changed, state.model_state)
        loss = self._workload.loss(outputs.astype(jnp.float32), batch, state.metaparameters)
        return loss.total, (loss.weight, changed)

    def _accumulated(self, state: TrialState, fetch: Fetch, key: jax.Array) -> tuple[jax.Array, Params, ModelState]:
        size, micro = self._config.batch_size, self._config.microbatch
        grad = jax.value_and_grad(self._loss_sum, has_aux=True)

        def add(start: jax.Array | int, count: int, sums: Any) -> Any:
            batch = self._workload.dataset.prepare(fetch(start, count))
            with examples_from(start):  # dropout as in the whole batch
                (total, (weight, changed)), grads = grad(state.params, state, batch, key)
            changed = jax.tree.map(lambda leaf: leaf * (count / size), changed)
            return jax.tree.map(jnp.add, sums, (total, jnp.asarray(weight, jnp.float32), grads, changed))

        sums = (jnp.float32(0), jnp.float32(0), *jax.tree.map(jnp.zeros_like, (state.params, state.model_state)))
        whole, rest = divmod(size, micro)
        sums = jax.lax.fori_loop(0, whole, lambda i, sums: add(i * micro, micro, sums), sums)
        if rest:
            sums = add(whole * micro, rest, sums)
        total, weight, grads, model_state = sums
        weight = jnp.where(weight > 0, weight, 1)
        return total / weight, jax.tree.map(lambda leaf: leaf / weight, grads), model_state


def make_step(
    workload: Workload, config: StepConfig, alone: bool
) -> Callable[[TrialState, Fetch, jax.Array], TrialState]:
    """The function that takes one step where ``alive``, and otherwise gives the state back unchanged.

    ``alone``: the caller ends the loop when the trial is not alive any more, so that the optimizer's state need not be
    kept for idle steps; that of a diverged trial is lost. This saves a pass over it and a copy of it.
    """
    gradients = Gradients(workload, config)

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
