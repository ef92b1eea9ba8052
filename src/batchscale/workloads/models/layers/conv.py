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
from batchscale.workloads.models.layers.winograd import convolve_by_tiles, slice_every, tiles_pay

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
    if _ordinary.get():
        return convolve_in_blocks(images, kernel, stride, padding)
    if stride == 1 and padding == "SAME" and tiles_pay(images, kernel):
        return convolve_by_tiles(images, kernel)
    height, width, channels, outputs = kernel.shape
    if height * width > 1 and height * width * channels <= outputs:  # patches no larger than the result
        return convolve_by_patches(images, kernel, stride, padding)
    return convolve_in_blocks(images, kernel, stride, padding)


def convolve_natively(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding) -> jax.Array:
    """Convolve with XLA's own operation."""
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), padding, dimension_numbers=order)


def convolve_by_patches(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding) -> jax.Array:
    """Convolve as one matrix product of whole patches: for the few channels of a first layer (docs/decisions/0254)."""
    flat, shape = _lay_out_rows(images, kernel, stride, padding)
    places = [slice_every(flat, 1, i, shape[1], stride) for i in range(len(kernel))]
    patches = jnp.concatenate(places, axis=-1)
    result: jax.Array = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, shape[-1])
    return result.reshape(shape)


def convolve_by_rows(images: jax.Array, kernel: jax.Array, stride: int, padding: Padding) -> jax.Array:
    """Convolve as one matrix product for each row of the kernel.

    The shifts along a row lie side by side in memory, which multiplies the input by the kernel's width only; laying
    out whole patches would multiply it by the kernel's area.
    """
    flat, shape = _lay_out_rows(images, kernel, stride, padding)
    products = [
        slice_every(flat, 1, i, shape[1], stride).reshape(-1, flat.shape[-1]) @ row.reshape(-1, shape[-1])
        for i, row in enumerate(kernel)
    ]
    result: jax.Array = sum(products[1:], products[0])
    return result.reshape(shape)


def _lay_out_rows(
    images: jax.Array, kernel: jax.Array, stride: int, padding: Padding
) -> tuple[jax.Array, tuple[int, int, int, int]]:
    """Return the padded images with the values under a kernel's row side by side, and the shape of the result."""
    height, width, _, outputs = kernel.shape
    (above, below, rows), (before, after, columns) = (
        _extent(side, length, stride, padding) for side, length in zip(images.shape[1:3], (height, width), strict=True)
    )
    images = jnp.pad(images, ((0, 0), (above, below), (before, after), (0, 0)))
    shifted = [slice_every(images, 2, j, columns, stride) for j in range(width)]
    flat = jnp.concatenate(shifted, axis=-1) if width > 1 else shifted[0]
    return flat, (images.shape[0], rows, columns, outputs)


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


@jax.custom_vjp
def max_pool(images: jax.Array) -> jax.Array:
    """Return the maxima of 2×2 windows; an odd last row or column is left out.

    Where several values of a window are the largest, they share the gradient evenly, while ``reduce_window`` gives it
    to the first. After ReLU this makes no difference: a tie is at 0, where no gradient passes.
    """
    return jnp.max(_windows(images), axis=(2, 4))


def _windows(images: jax.Array) -> jax.Array:
    count, height, width, channels = images.shape
    rows, columns = height // 2, width // 2
    return images[:, : 2 * rows, : 2 * columns].reshape(count, rows, 2, columns, 2, channels)


def _max_pool_forward(images: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    maxima = max_pool(images)
    return maxima, (images, maxima)


def _max_pool_backward(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array]:
    """Return what JAX does, in one pass: the count of the largest values is written out, so that nothing is stored."""
    images, maxima = residuals
    windows = _windows(images)
    shares = gradient / sum((windows[:, :, i, :, j] == maxima).astype(gradient.dtype) for i in (0, 1) for j in (0, 1))
    whole = jnp.where(windows == _spread(maxima), _spread(shares), 0)
    count, height, width, channels = images.shape
    rows, columns = maxima.shape[1:3]
    whole = whole.reshape(count, 2 * rows, 2 * columns, channels)
    return (jnp.pad(whole, ((0, 0), (0, height - 2 * rows), (0, width - 2 * columns), (0, 0))),)


def _spread(values: jax.Array) -> jax.Array:
    return values[:, :, None, :, None]


max_pool.defvjp(_max_pool_forward, _max_pool_backward)
