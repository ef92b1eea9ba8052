"""The order of training examples: a fresh permutation of the training set for every epoch.

Position p of epoch e holds example ``permute(p, key, e)``, a bijection computed per element, so that nothing is stored,
nothing is sorted, and any position is computed at once, as a compiled loop over members in different epochs needs.
The same code runs on the device (jax.numpy) and on the host (numpy), where sets are read that
do not fit on the device.

The bijection is a Feistel network on a grid of height × width cells just larger than the set. Its rounds add a hash of
one coordinate to the other. A value that lands outside of the set goes through the network again until it is inside
("cycle walking"), which keeps it a bijection; the grid exceeds the set by less than one row, so that is rare.
"""

import math
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
_GOLDEN = 0x9E3779B9


def mix(bits: Any, xp: ModuleType = jnp) -> Any:
    """Return a 32-bit hash of 32-bit words in which every input bit affects every output bit."""
    bits = bits ^ (bits >> xp.uint32(16))
    bits = bits * xp.uint32(0x7FEB352D)
    bits = bits ^ (bits >> xp.uint32(15))
    bits = bits * xp.uint32(0x846CA68B)
    return bits ^ (bits >> xp.uint32(16))


def permute(positions: Any, key: Any, epochs: Any, num_examples: int, xp: ModuleType = jnp) -> Any:
    """Return the examples at these positions (uint32, below ``num_examples``) of these epochs (uint32).

    Args:
        positions: positions within the epoch.
        key: two 32-bit words.
        epochs: the epoch of each position.
        num_examples: the size of the training set.
        xp: jax.numpy, or numpy on the host.
    """
    height = math.isqrt(num_examples - 1) + 1
    width = -(-num_examples // height)
    words = mix(epochs * xp.uint32(_GOLDEN) + key[0], xp), mix(epochs ^ mix(key[1], xp), xp)

    def encrypt(cells: Any) -> Any:
        def two_rounds(i: Any, place: Any) -> Any:
            row, column = place
            salt = (xp.uint32(2) * i + xp.uint32(1)) * xp.uint32(_GOLDEN)
            row = _add(row, mix(mix(column + words[0] + salt, xp) ^ words[1], xp), height, xp)
            salt = salt + xp.uint32(_GOLDEN)
            return row, _add(column, mix(mix(row + words[0] + salt, xp) ^ words[1], xp), width, xp)

        place = cells // xp.uint32(width), cells % xp.uint32(width)
        if xp is jnp:  # a loop: the compiler reads the rounds once, and not six times
            place = jax.lax.fori_loop(jnp.uint32(0), jnp.uint32(ROUNDS // 2), two_rounds, place)
        else:
            for i in range(ROUNDS // 2):
                place = two_rounds(np.uint32(i), place)
        return place[0] * xp.uint32(width) + place[1]

    is_full = height * width == num_examples
    if xp is jnp and not is_full:
        outside = jnp.uint32(num_examples)

        def again(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            cells, done = carry
            cells = jnp.where(done, cells, encrypt(cells))
            return cells, cells < outside

        return jax.lax.while_loop(
            lambda carry: ~jnp.all(carry[1]), again, (positions, jnp.zeros(positions.shape, bool))
        )[0]
    cells = encrypt(positions)
    while not is_full and np.any(cells >= num_examples):
        cells = np.where(cells >= num_examples, encrypt(cells), cells)
    return cells


def _add(coordinate: Any, bits: Any, size: int, xp: ModuleType) -> Any:
    total = coordinate + bits % xp.uint32(size)
    return xp.where(total >= xp.uint32(size), total - xp.uint32(size), total)


def batch_indices(key: jax.Array, epoch: jax.Array, offset: jax.Array, size: int, num_examples: int) -> jax.Array:
    """Return the examples of the batch that starts at ``offset`` of ``epoch`` and may end in the next one (device)."""
    positions = offset.astype(jnp.uint32) + jnp.arange(size, dtype=jnp.uint32)
    epochs = epoch.astype(jnp.uint32) + positions // jnp.uint32(num_examples)
    indices: jax.Array = permute(positions % jnp.uint32(num_examples), key, epochs, num_examples).astype(jnp.int32)
    return indices


def host_indices(
    key: NDArray[np.uint32], first_position: int, size: int, num_examples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the examples from an absolute position on, and the epoch of each (host)."""
    positions = first_position + np.arange(size, dtype=np.int64)
    epochs, inside = np.divmod(positions, num_examples)
    with np.errstate(over="ignore"):
        examples = permute(inside.astype(np.uint32), key, epochs.astype(np.uint32), num_examples, np)
    return examples.astype(np.int64), epochs
