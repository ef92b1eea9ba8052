"""ResNet-50 with pre-activation bottleneck blocks (He et al., 2016b) and ghost batch normalization."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import Conv, DType
from batchscale.workloads.models.layers.initializers import before_output
from batchscale.workloads.models.layers.linear import Linear

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
        """Return the normalised values, in the type they came in."""
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


_EXPANSION = 4


@dataclass(frozen=True)
class Norms:
    """The settings of every normalization of the model."""

    ghost_batch_size: int
    decay: float

    def make(self, channels: int) -> GhostNorm:
        """Return a normalization of this many channels."""
        return GhostNorm(channels, self.ghost_batch_size, self.decay)


class Bottleneck(nnx.Module):
    """1×1, 3×3 and 1×1 convolutions, each after normalization and ReLU, added to the input.

    Where the shape changes, the shortcut is a 1×1 convolution of the activated input.
    """

    def __init__(self, num_inputs: int, width: int, stride: int, *, norms: Norms, dtype: DType, rngs: nnx.Rngs) -> None:
        def conv(inputs: int, outputs: int, size: int, step: int = 1) -> Conv:
            return Conv(inputs, outputs, size, stride=step, bias=False, dtype=dtype, rngs=rngs)

        outputs = _EXPANSION * width
        self.norms = nnx.List([norms.make(num_inputs), norms.make(width), norms.make(width)])
        self.convs = nnx.List([conv(num_inputs, width, 1), conv(width, width, 3, stride), conv(width, outputs, 1)])
        self.shortcut = conv(num_inputs, outputs, 1, stride) if stride != 1 or num_inputs != outputs else None

    def __call__(self, values: jax.Array, *, train: bool) -> jax.Array:
        """Return the block's outputs."""
        active = nnx.relu(self.norms[0](values, train=train))
        shortcut = values if self.shortcut is None else self.shortcut(active)
        change = self.convs[0](active)
        for norm, conv in zip(list(self.norms)[1:], list(self.convs)[1:], strict=True):
            change = conv(nnx.relu(norm(change, train=train)))
        return shortcut + change


class ResNet50(nnx.Module):
    """A 7×7 convolution and max-pooling, stages of bottleneck blocks with doubling widths, mean, output layer."""

    def __init__(
        self,
        channels: int,
        width: int,
        blocks: tuple[int, ...],
        num_outputs: int,
        *,
        norms: Norms,
        dtype: DType,
        rngs: nnx.Rngs,
    ) -> None:
        self.stem = Conv(channels, width, 7, stride=2, bias=False, dtype=dtype, rngs=rngs)
        made, inputs = [], width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                made.append(Bottleneck(inputs, width << stage, stride, norms=norms, dtype=dtype, rngs=rngs))
                inputs = _EXPANSION * (width << stage)
        self.blocks = nnx.List(made)
        self.last = norms.make(inputs)
        self.output = Linear(inputs, num_outputs, dtype=dtype, kernel_init=before_output(), rngs=rngs)

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits."""
        del key
        values = _overlapping_max_pool(self.stem(inputs))
        for block in self.blocks:
            values = block(values, train=train)
        return self.output(jnp.mean(nnx.relu(self.last(values, train=train)), axis=(1, 2)))


def _overlapping_max_pool(images: jax.Array) -> jax.Array:
    """Return the maxima of 3×3 windows, two pixels apart, as elementwise maxima of shifted images.

    Unlike ``reduce_window`` its gradient needs no scatter, which a CPU does one element at a time.
    """
    count, height, width, channels = images.shape
    rows, columns = -(-height // 2), -(-width // 2)
    lowest = jnp.full((), -jnp.inf, images.dtype)
    above, before = max(2 * rows + 1 - height, 0) // 2, max(2 * columns + 1 - width, 0) // 2
    padded = jax.lax.pad(
        images,
        lowest,
        (
            (0, 0, 0),
            (above, 2 * rows + 1 - height - above, 0),
            (before, 2 * columns + 1 - width - before, 0),
            (0, 0, 0),
        ),
    )
    largest = padded[:, 0 : 2 * rows : 2]
    for i in (1, 2):
        largest = jnp.maximum(largest, padded[:, i : i + 2 * rows : 2])
    result = largest[:, :, 0 : 2 * columns : 2]
    for j in (1, 2):
        result = jnp.maximum(result, largest[:, :, j : j + 2 * columns : 2])
    return result.reshape(count, rows, columns, channels)
