"""Ghost batch normalization (Hoffer et al., 2017): statistics over small groups of a batch, whatever its size."""

import jax
import jax.numpy as jnp
from flax import nnx

_EPSILON = 1e-5


class GhostNorm(nnx.Module):
    """Normalises each channel over groups of ``ghost_batch_size`` examples; the last group may be smaller.

    Running statistics for evaluation move towards the mean of the groups' statistics, weighted by their examples.
    They are linear in that mean, so that the example-weighted mean of microbatches' states is the whole batch's.
    """

    def __init__(self, channels: int, ghost_batch_size: int, decay: float) -> None:
        self.scale = nnx.Param(jnp.ones(channels, jnp.float32))
        self.offset = nnx.Param(jnp.zeros(channels, jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros(channels, jnp.float32))
        self.variance = nnx.BatchStat(jnp.ones(channels, jnp.float32))
        self.size = ghost_batch_size
        self.decay = decay

    def __call__(self, values: jax.Array, *, train: bool) -> jax.Array:
        """The normalised values, in the type they came in."""
        if not train:
            return self._normalise(values, self.mean[...], self.variance[...])
        count = values.shape[0]
        whole = count // self.size * self.size
        parts, means, variances = [], jnp.zeros_like(self.mean[...]), jnp.zeros_like(self.variance[...])
        for part, size in ((values[:whole], self.size), (values[whole:], count - whole)):
            if part.shape[0] == 0:
                continue
            groups = part.reshape(-1, size, *part.shape[1:])
            axes = tuple(range(1, groups.ndim - 1))
            mean, variance = _moments(groups, axes)
            parts.append(self._normalise(groups, mean, variance).reshape(part.shape))
            weight = part.shape[0] / count
            means += weight * jnp.mean(mean.reshape(-1, mean.shape[-1]), axis=0)
            variances += weight * jnp.mean(variance.reshape(-1, mean.shape[-1]), axis=0)
        self.mean[...] = self.decay * self.mean[...] + (1 - self.decay) * means
        self.variance[...] = self.decay * self.variance[...] + (1 - self.decay) * variances
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def _normalise(self, values: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
        factor = self.scale[...] * jax.lax.rsqrt(variance + _EPSILON)
        result = (values.astype(jnp.float32) - mean) * factor + self.offset[...]
        return result.astype(values.dtype)


def _moments(groups: jax.Array, axes: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    exact = groups.astype(jnp.float32)  # half precision would lose the difference of nearby squares
    mean = jnp.mean(exact, axis=axes, keepdims=True)
    return mean, jnp.mean(jnp.square(exact - mean), axis=axes, keepdims=True)
