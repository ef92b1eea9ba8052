"""Convolution with fewer products on a CPU: the minimal filtering of Winograd (Lavin and Gray, 2016) by tiles.

A tile of m×m outputs needs (m + r - 1)² products per pair of channels instead of m²r² for a kernel of r×r: 36 instead
of 100 for 5×5, 36 instead of 144 for 3×3. The products of all tiles are one batched matrix product; the sums before and
after it have small constant coefficients. Its error in float32 is a few times that of an ordinary sum of products
(docs/decisions/0248). Images of a few megabytes at a time stay in the cache, as in ``conv``.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
"""Of the polynomials that are multiplied, beside infinity: of those tried, the ones with the least error."""
_OUTPUTS = {3: 4, 5: 2}
"""The side of a tile of outputs by the side of the kernel: both read tiles of six by six."""
_LEAST_CHANNELS = 16
_LEAST_TILES = 64
_KERNEL_BYTES = 3 * 2**19
_BLOCK_BYTES = 3 * 2**20


class Transforms(NamedTuple):
    """The sums along one side of a tile: outputs = to_outputs @ ((of_kernel @ kernel) * (of_inputs @ inputs))."""

    to_outputs: NDArray[np.float64]
    of_kernel: NDArray[np.float64]
    of_inputs: NDArray[np.float64]


@functools.cache
def make_transforms(size: int) -> Transforms:
    """Return the sums for kernels of this side: those of Toom and Cook."""
    outputs, points = _OUTPUTS[size], np.array(_POINTS)
    powers = points[:, None] ** np.arange(max(size, outputs))
    infinity = np.eye(max(size, outputs))
    others = [np.delete(points, i) for i in range(len(points))]
    inputs = np.array([[*np.poly(roots)[::-1], 0.0] for roots in others] + [np.poly(points)[::-1]])
    distances = np.array([np.prod(point - rest) for point, rest in zip(points, others, strict=True)])
    kernel = np.vstack([powers[:, :size] / distances[:, None], infinity[size - 1, :size]])
    to_outputs = np.vstack([powers[:, :outputs], infinity[outputs - 1, :outputs]]).T
    return Transforms(to_outputs, kernel, inputs)


def tiles_pay(images: jax.Array, kernel: jax.Array) -> bool:
    """Return True if a convolution of stride 1 is faster by tiles: enough channels and tiles, and not too many weights.

    The transformed weights stay in the cache; transforming them is work that all tiles of a batch share.
    """
    height, width, inputs, outputs = kernel.shape
    if not (height == width and height in _OUTPUTS and images.dtype == kernel.dtype == jnp.float32):
        return False
    tiles = images.shape[0] * np.prod(_tile_counts(images, height))
    small = 4 * len(make_transforms(height).of_kernel) ** 2 * inputs * outputs <= _KERNEL_BYTES
    return bool(min(inputs, outputs) >= _LEAST_CHANNELS and tiles >= _LEAST_TILES and small)


@jax.custom_vjp
def convolve_by_tiles(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Return the convolution of images (N, H, W, C) with a kernel (size, size, C, O), padded to the same sides."""
    size = kernel.shape[0]
    weights = _transform_kernel(kernel)
    blocks = _in_blocks(images, kernel)
    results = jax.lax.map(lambda some: _to_outputs(_multiply(_of_inputs(some, size), weights), size), blocks)
    return _join(results, images.shape)


def _forward(images: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return convolve_by_tiles(images, kernel), (images, kernel)


def _backward(residuals: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the gradients by the transposed sums; the tiles of the inputs are computed again instead of stored."""
    images, kernel = residuals
    size = kernel.shape[0]
    weights, pull_kernel = jax.vjp(_transform_kernel, kernel)
    blocks = _in_blocks(images, kernel)

    def add(total: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        some, above = pair
        tiles, above = _of_inputs(some, size), _from_outputs(above, size)
        to_weights = jnp.einsum("ktc,kto->kco", _flat(tiles), _flat(above)).reshape(weights.shape)
        return total + to_weights, _to_inputs(_multiply(above, weights.swapaxes(2, 3)), size)

    total, to_images = jax.lax.scan(add, jnp.zeros_like(weights), (blocks, _split(gradient, size, blocks.shape[1])))
    return _join(to_images, images.shape), pull_kernel(total)[0]


convolve_by_tiles.defvjp(_forward, _backward)


def _in_blocks(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Return the images in groups whose tiles fit into the cache, of equal size."""
    size, _, inputs, outputs = kernel.shape
    count = images.shape[0]
    each = 4 * len(make_transforms(size).of_inputs) ** 2 * np.prod(_tile_counts(images, size)) * (inputs + outputs)
    most = max(1, min(count, _BLOCK_BYTES // int(each)))
    block = max(divisor for divisor in range(1, most + 1) if count % divisor == 0)
    return images.reshape(count // block, block, *images.shape[1:])


def _tile_counts(images: jax.Array, size: int) -> tuple[int, int]:
    outputs = _OUTPUTS[size]
    return -(-images.shape[1] // outputs), -(-images.shape[2] // outputs)


def _mix(coefficients: NDArray[np.float64], parts: list[jax.Array]) -> jax.Array:
    """Return sums of the parts, one for each row of coefficients, along a new first axis.

    XLA stores a stack before it reads it; the same sums as one broadcast product are computed again by every reader.
    """
    rows = []
    for row in coefficients:
        terms = [
            part if factor == 1 else part * np.float32(factor)
            for factor, part in zip(row, parts, strict=True)
            if factor
        ]
        rows.append(sum(terms[1:], terms[0]))
    return jnp.stack(rows)


def _transform_kernel(kernel: jax.Array) -> jax.Array:
    """Return the weights of each product: (column, row, C, O) of six by six."""
    of_kernel = make_transforms(kernel.shape[0]).of_kernel
    by_row = _mix(of_kernel, list(kernel))
    return _mix(of_kernel, [by_row[:, j] for j in range(kernel.shape[1])])


def _of_inputs(images: jax.Array, size: int) -> jax.Array:
    """Return the transformed tiles (column, row, image, tile row, tile column, C)."""
    outputs, of_inputs = _OUTPUTS[size], make_transforms(size).of_inputs
    down, across = _tile_counts(images, size)
    pads = [
        (size // 2, tiles * outputs + size // 2 - side)
        for tiles, side in zip((down, across), images.shape[1:3], strict=True)
    ]
    images = jnp.pad(images, ((0, 0), *pads, (0, 0)))
    rows = [slice_every(images, 1, i, down, outputs) for i in range(len(of_inputs))]
    by_row = _mix(of_inputs, rows)
    return _mix(of_inputs, [slice_every(by_row, 3, j, across, outputs) for j in range(len(of_inputs))])


def slice_every(values: jax.Array, axis: int, start: int, count: int, stride: int) -> jax.Array:
    """Return ``count`` places of an axis, from ``start`` on, each ``stride`` after the last."""
    return jax.lax.slice_in_dim(values, start, start + (count - 1) * stride + 1, stride, axis)


def _to_inputs(tiles: jax.Array, size: int) -> jax.Array:
    """Return the transpose of ``_of_inputs``: (row, column, image, tile row, tile column, C) of m by m."""
    transposed = make_transforms(size).of_inputs.T
    by_column = _overlap(_mix(transposed, list(tiles)), 4, size)
    return _overlap(_mix(transposed, [by_column[:, a] for a in range(tiles.shape[1])]), 3, size)


def _overlap(values: jax.Array, axis: int, size: int) -> jax.Array:
    """Add up overlapping tiles: place j of tile t is place j + m * t of the padded side; the padding is left out."""
    outputs, count, margin = _OUTPUTS[size], values.shape[axis], size // 2
    places = len(values)
    before, after = (places - 1 - margin) // outputs, (outputs - 1 + margin) // outputs
    widths = [(0, 0)] * values.ndim
    widths[axis] = (before, after)
    values = jnp.pad(values, widths)
    sums = []
    for place in range(outputs):
        terms = [
            jax.lax.slice_in_dim(
                values[place + margin + outputs * shift], before - shift, before - shift + count, 1, axis - 1
            )
            for shift in range(-after, before + 1)
            if 0 <= place + margin + outputs * shift < places
        ]
        sums.append(sum(terms[1:], terms[0]))
    return jnp.stack(sums)


def _multiply(tiles: jax.Array, weights: jax.Array) -> jax.Array:
    products = _flat(tiles) @ weights.reshape(-1, *weights.shape[2:])
    return products.reshape(*tiles.shape[:-1], -1)


def _flat(tiles: jax.Array) -> jax.Array:
    return tiles.reshape(tiles.shape[0] * tiles.shape[1], -1, tiles.shape[-1])


def _to_outputs(products: jax.Array, size: int) -> jax.Array:
    """Return the outputs (row, column, image, tile row, tile column, O) of m by m."""
    to_outputs = make_transforms(size).to_outputs
    by_column = _mix(to_outputs, list(products))
    return _mix(to_outputs, [by_column[:, a] for a in range(products.shape[1])])


def _from_outputs(gradient: jax.Array, size: int) -> jax.Array:
    """Return the transpose of ``_to_outputs``."""
    transposed = make_transforms(size).to_outputs.T
    by_row = _mix(transposed, list(gradient))
    return _mix(transposed, [by_row[:, j] for j in range(gradient.shape[1])])


def _join(blocks: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return images of this shape's sides from blocks of (row, column, image, tile row, tile column, channel)."""
    count, rows, columns, block, down, across, channels = blocks.shape
    images = blocks.transpose(0, 3, 4, 1, 5, 2, 6).reshape(count * block, down * rows, across * columns, channels)
    return images[:, : shape[1], : shape[2]]


def _split(images: jax.Array, size: int, block: int) -> jax.Array:
    """Return the transpose of ``_join``."""
    side, (down, across) = _OUTPUTS[size], _tile_counts(images, size)
    count, height, width, channels = images.shape
    images = jnp.pad(images, ((0, 0), (0, down * side - height), (0, across * side - width), (0, 0)))
    return images.reshape(count // block, block, down, side, across, side, channels).transpose(0, 3, 5, 1, 2, 4, 6)
