"""ResNet-8 without batch normalization: He et al. (2016a), section 4.2, with pre-activation blocks (2016b)."""

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.conv import Conv, DType
from batchscale.workloads.models.layers.initializers import before_output
from batchscale.workloads.models.layers.linear import Linear


class Block(nnx.Module):
    """ReLU, convolution, ReLU, convolution, added to the input; no parameters on the shortcut.

    Where the block halves the image, the shortcut takes every second pixel and fills new channels with zeros
    (option A of He et al., 2016a).
    """

    def __init__(self, num_inputs: int, num_outputs: int, stride: int, *, dtype: DType, rngs: nnx.Rngs) -> None:
        self.first = Conv(num_inputs, num_outputs, 3, stride=stride, dtype=dtype, rngs=rngs)
        self.second = Conv(num_outputs, num_outputs, 3, dtype=dtype, rngs=rngs)
        self.stride = stride
        self.added = num_outputs - num_inputs

    def __call__(self, values: jax.Array) -> jax.Array:
        """Return the block's outputs."""
        change = self.second(nnx.relu(self.first(nnx.relu(values))))
        shortcut = values[:, :: self.stride, :: self.stride]
        return change + jnp.pad(shortcut, ((0, 0), (0, 0), (0, 0), (0, self.added))).astype(change.dtype)


class ResNet8(nnx.Module):
    """One convolution, three stages of ``blocks`` blocks with doubling widths, mean over pixels, output layer."""

    def __init__(
        self, channels: int, width: int, blocks: int, num_outputs: int, *, dtype: DType, rngs: nnx.Rngs
    ) -> None:
        self.stem = Conv(channels, width, 3, dtype=dtype, rngs=rngs)
        widths = [width, width, 2 * width, 4 * width]
        self.blocks = nnx.List(
            Block(
                widths[stage] if block == 0 else widths[stage + 1],
                widths[stage + 1],
                2 if stage > 0 and block == 0 else 1,
                dtype=dtype,
                rngs=rngs,
            )
            for stage in range(3)
            for block in range(blocks)
        )
        self.output = Linear(widths[-1], num_outputs, dtype=dtype, kernel_init=before_output(), rngs=rngs)

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits; nothing differs between training and evaluation."""
        del train, key
        values = self.stem(inputs)
        for block in self.blocks:
            values = block(values)
        return self.output(jnp.mean(nnx.relu(values), axis=(1, 2)))
