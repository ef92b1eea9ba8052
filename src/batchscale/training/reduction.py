"""The gradient of a batch whose examples lie on several devices: each sums over its own, then all sums are added once.

Runs inside a program that is mapped over devices. All that is added goes through one flat buffer: one exchange per
step, whatever the number of layers and microbatches.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from batchscale.training.devices import AXIS, add_up, gather, hide
from batchscale.training.shards import Shards
from batchscale.training.state import TrialState
from batchscale.training.step_sums import Fetch, StepSums, mean_of_sums
from batchscale.workloads.workload import ModelState, Params


class ShardedGradients:
    """The mean loss of a batch, its gradient, and the changed model state, over all devices."""

    def __init__(self, sums: StepSums, shards: Shards) -> None:
        self._sums = sums
        self._shards = shards

    def __call__(self, state: TrialState, fetch: Fetch, key: jax.Array) -> tuple[jax.Array, Params, ModelState]:
        """The same on every device."""
        zeros = self._sums.zeros(state)
        _, unravel = ravel_pytree(zeros)
        one = partial(self._one_shard, state, fetch, key)
        nothing = jnp.minimum(state.step, 0)
        flat = self._add_in_order(one, nothing) if self._shards.exact else add_up(one(jax.lax.axis_index(AXIS)))
        return mean_of_sums(unravel(flat))

    def _one_shard(self, state: TrialState, fetch: Fetch, key: jax.Array, shard: jax.Array) -> jax.Array:
        """The sums of a shard. One that is smaller is computed at its own size: no padding that a model could see."""
        counts = self._shards.counts
        sizes = sorted(set(counts))

        def sums_of(count: int, start: jax.Array) -> jax.Array:
            found = self._sums.over(state, fetch, key, start, count) if count else self._sums.zeros(state)
            return ravel_pytree(found)[0]

        start = shard * self._shards.size
        if len(sizes) == 1:
            return sums_of(sizes[0], start)
        which = jnp.array([sizes.index(count) for count in counts])[shard]
        flat: jax.Array = jax.lax.switch(which, [partial(sums_of, count) for count in sizes], start)
        return flat

    def _add_in_order(self, one_shard: Any, nothing: jax.Array) -> jax.Array:
        """Every shard's sums on every device, added in the order of the shards.

        The loop's length, and on one device its start, are hidden from the compiler behind a zero that it does not
        know: it would open a loop of one round, or fold what follows from a known start, and round in other ways.
        """
        here = self._shards.per_device
        first = jax.lax.axis_index(AXIS) * here + nothing
        length = jax.eval_shape(one_shard, first).shape[0]

        def fill(i: jax.Array, rows: jax.Array) -> jax.Array:
            return rows.at[i].set(one_shard(first + i))

        rounds = here + nothing
        rows = jax.lax.fori_loop(0, rounds, fill, jnp.zeros((here, length), jnp.float32))
        everywhere = hide(gather(rows))
        total: jax.Array = everywhere[0]
        for row in range(1, self._shards.count):
            total = total + everywhere[row]
        hidden: jax.Array = hide(total)
        return hidden
