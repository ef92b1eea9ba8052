"""The scrambled Halton sequence of ``scipy.stats.qmc``, number for number, without a second of import time.

Every run draws its points before anything else, and ``scipy.stats`` takes longer to load than all of them to draw.
"""

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_BITS = 54
"""Digits beyond this many bits leave a double as it is."""


def halton_points(dimension: int, seed: int, start: int, count: int) -> NDArray[np.float64]:
    """Points ``start`` to ``start + count - 1``, one a row: Owen, A randomized Halton algorithm in R, 2017.

    >>> halton_points(2, seed=3, start=1, count=2).round(3).tolist()
    [[0.854, 0.578], [0.104, 0.245]]
    """
    columns = [_one_dimension(digits, start, count) for digits in _shuffled_digits(dimension, seed)]
    return np.stack(columns, axis=1)


def _one_dimension(shuffled: NDArray[np.int64], start: int, count: int) -> NDArray[np.float64]:
    """The numbers mirrored at the point in the base of this dimension, every digit in its own shuffled order."""
    base = shuffled.shape[1]
    left, share = np.arange(start, start + count), 1.0 / base
    points = np.zeros(count)
    for digits in shuffled:
        points += digits[left % base] * share
        left //= base
        share /= base
    return points


@lru_cache(maxsize=64)
def _shuffled_digits(dimension: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """For every dimension a row of shuffled digits per place."""
    random = np.random.default_rng(seed).spawn(1)[0]  # as SciPy does with a seed
    found = []
    for base in itertools.islice(_primes(), dimension):
        rows = np.repeat(np.arange(base)[None], math.ceil(_BITS / math.log2(base)) - 1, axis=0)
        for row in rows:
            random.shuffle(row)
        rows.flags.writeable = False  # they are kept for the next call
        found.append(rows)
    return tuple(found)


def _primes() -> Iterator[int]:
    found: list[int] = []
    for number in itertools.count(2):
        if all(number % prime for prime in found):
            found.append(number)
            yield number
