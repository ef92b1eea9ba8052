"""Convolution and max-pooling in the form that is fast on the backend at hand.

Inside a compiled loop on a CPU, XLA's own convolution is about ten times slower than the same sums written as matrix
products (docs/decisions/0020), and with enough channels there is a form with fewer products (``winograd``). On a GPU or
TPU the native operation is right.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.layers.initializers import Initializer, before_relu
from batchscale.workloads.models.layers.winograd import convolve_by_tiles, tiles_pay

Padding = Literal["SAME", "VALID"]
DType = jnp.dtype | None
"""The type that a layer computes in; None: that of its inputs and parameters."""

_BLOCK_BYTES = 2**20
_ordinary: ContextVar[bool] = ContextVar("ordinary", default=False)


@contextmanager
def ordinary_products() -> Iterator[None]:
    """Trace convolutions as plain sums of products: the operations of a model, whatever this machine saves of them."""
    token = _ordinary.set(True)
    try:
        yield
    finally:
        _ordinary.reset(token)


class Conv(nnx.Module):
    """A two-dimensional convolution of images (example, height, width, channel)."""

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        size: int,
        *,
        rngs: nnx.Rngs,
        stride: int = 1,
        bias: bool = True,
        dtype: DType = None,
        kernel_init: Initializer | None = None,
    ) -> None:
        shape = (size, size, num_inputs, num_outputs)
        self.kernel = nnx.Param((kernel_init or before_relu())(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(num_outputs, jnp.float32)) if bias else None
        self.stride = stride
        self.dtype = dtype

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the convolved images, padded so that their sides are those of the input divided by the stride."""
        kernel = self.kernel[...]
        if self.dtype is not None:
            images, kernel = images.astype(self.dtype), kernel.astype(self.dtype)
        result = convolve(images, kernel, self.stride)
        return result if self.bias is None else result + self.bias[...].astype(result.dtype)


def convolve(images: jax.Array, kernel: jax.Array, stride: int = 1, padding: Padding = "SAME") -> jax.Array:
    """Return the convolution of images (N, H, W, C) with a kernel (height, width, C, O)."""
    if jax.default_backend() != "cpu":
        return convolve_natively(images, kernel, stride, padding)
    if stride == 1 and padding == "SAME" and tiles_pay(images, kernel) and not _ordinary.get():
        return convolve_by_tiles(images, kernel)
    return convolve_in_blocks(images, kernel, stride, padding)


def convolve_natively(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding) -> jax.Array:
    """Convolve with XLA's own operation."""
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), padding, dimension_numbers=order)


def convolve_by_rows(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding) -> jax.Array:
    """Convolve as one matrix product for each row of the kernel.

    The shifts along a row lie side by side in memory, which multiplies the input by the kernel's width only; laying
    out whole patches would multiply it by the kernel's area.
    """
    height, width, channels, outputs = kernel.shape
    count = images.shape[0]
    (above, below, rows), (before, after, columns) = (
        _extent(side, length, stride, padding) for side, length in zip(images.shape[1:3], (height, width), strict=True)
    )
    images = jnp.pad(images, ((0, 0), (above, below), (before, after), (0, 0)))
    last_row, last_column = (rows - 1) * stride + 1, (columns - 1) * stride + 1
    shifted = [images[:, :, j : j + last_column : stride] for j in range(width)]
    flat = jnp.concatenate(shifted, axis=-1) if width > 1 else shifted[0]
    products = [
        flat[:, i : i + last_row : stride].reshape(count * rows * columns, width * channels)
        @ kernel[i].reshape(width * channels, outputs)
        for i in range(height)
    ]
    return sum(products[1:], products[0]).reshape(count, rows, columns, outputs)


def convolve_in_blocks(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding) -> jax.Array:
    """``convolve_by_rows`` over a few images at a time, so that intermediate arrays stay in the cache.

    The gradient computes them again instead of storing them. On two cores with 512 KiB of cache each this was 1.7 to
    3.5 times as fast as the whole batch at once, from batch 64 on (docs/decisions/0041).
    """
    count, block = images.shape[0], _block_size(images, kernel, stride, padding)
    whole = count // block * block
    if whole == block:  # nothing to be gained: one block, and perhaps a part of another
        return convolve_by_rows(images, kernel, stride, padding)
    result = _blocks(images[:whole], kernel, stride, padding, block)
    if whole == count:
        return result
    return jnp.concatenate([result, convolve_by_rows(images[whole:], kernel, stride, padding)])


def _block_size(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding) -> int:
    """Return the number of images that fit: the largest power of two, at most the batch."""
    (_, _, rows), (_, _, columns) = (
        _extent(side, length, stride, padding) for side, length in zip(images.shape[1:3], kernel.shape[:2], strict=True)
    )
    shifted = images.shape[1] * columns * kernel.shape[1] * kernel.shape[2]
    each = images.dtype.itemsize * (shifted + rows * columns * kernel.shape[3])
    fitting = max(1, min(images.shape[0], _BLOCK_BYTES // each))
    return 1 << (fitting.bit_length() - 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _blocks(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding, block: int) -> jax.Array:
    blocks = images.reshape(-1, block, *images.shape[1:])
    result: jax.Array = jax.lax.map(lambda some: convolve_by_rows(some, kernel, stride, padding), blocks)
    return result.reshape(images.shape[0], *result.shape[2:])


def _blocks_forward(
    images: jax.Array, kernel: jax.Array, stride: int, padding: Padding, block: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _blocks(images, kernel, stride, padding, block), (images, kernel)


def _blocks_backward(
    stride: int, padding: Padding, block: int, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    images, kernel = residuals

    def add(total: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        some, above = pair
        _, pull = jax.vjp(lambda some, kernel: convolve_by_rows(some, kernel, stride, padding), some, kernel)
        to_images, to_kernel = pull(above)
        return total + to_kernel, to_images

    pairs = (images.reshape(-1, block, *images.shape[1:]), gradient.reshape(-1, block, *gradient.shape[1:]))
    to_kernel, to_images = jax.lax.scan(add, jnp.zeros_like(kernel), pairs)
    return to_images.reshape(images.shape), to_kernel


_blocks.defvjp(_blocks_forward, _blocks_backward)


def _extent(side: int, length: int, stride: int, padding: Padding) -> tuple[int, int, int]:
    """Return the padding before and after, and the number of outputs, along one side."""
    if padding == "VALID":
        return 0, 0, (side - length) // stride + 1
    outputs = -(-side // stride)
    missing = max((outputs - 1) * stride + length - side, 0)
    return missing // 2, missing - missing // 2, outputs


def max_pool(images: jax.Array) -> jax.Array:
    """Return the maxima of 2×2 windows; an odd last row or column is left out.

    Where several values of a window are the largest, they share the gradient evenly, while ``reduce_window`` gives it
    to the first. After ReLU this makes no difference: a tie is at 0, where no gradient passes.
    """
    count, height, width, channels = images.shape
    rows, columns = height // 2, width // 2
    windows = images[:, : 2 * rows, : 2 * columns].reshape(count, rows, 2, columns, 2, channels)
    return jnp.max(windows, axis=(2, 4))
