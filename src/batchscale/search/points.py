"""Quasi-random points: one stream per study, the k-th point a pure function of (seed, space, k).

Nothing is stored between calls: a later call continues the stream, and a resumed search draws the same points as an
uninterrupted one. The scrambled Halton sequence equals that of ``scipy.stats.qmc`` number for number; it is written
out here because every run draws its points first, and ``scipy.stats`` takes a second to import.

From the unit interval to values: DOUBLE maps uniformly in value (LINEAR), in log(value) (LOG) or in log(1 - value)
(REVERSE_LOG, growing with the value). INTEGER cuts the range into one cell per whole number on its scale. DISCRETE has
one equal cell per feasible point.
"""

import itertools
import math
import warnings
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from batchscale.spec.experiment import Algorithm
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace


def to_value(config: ParameterConfig, unit: float) -> float:
    """Return the value of a metaparameter at a point of the unit interval.

    >>> from batchscale.spec import ParameterType, Scale
    >>> momentum = ParameterConfig("momentum", ParameterType.DOUBLE, 0.9, 0.9999, Scale.REVERSE_LOG)
    >>> round(to_value(momentum, 2 / 3), 12)
    0.999
    """
    unit = min(max(unit, 0.0), 1.0)
    if config.type is ParameterType.DISCRETE:
        points = config.feasible_points
        return points[min(int(unit * len(points)), len(points) - 1)]
    if config.type is ParameterType.INTEGER:
        value = float(math.floor(_from_scale(config.scale, unit, config.min_value, config.max_value + 1)))
    else:
        value = _from_scale(config.scale, unit, config.min_value, config.max_value)
    return float(min(max(value, config.min_value), config.max_value))


def to_unit(config: ParameterConfig, value: float) -> float:
    """Return the point of the unit interval for a value: the middle of its cell for INTEGER and DISCRETE.

    A value outside the range gives a point outside the unit interval (NaN where the scale ends, or for a value that
    is no feasible point).
    """
    if config.type is ParameterType.DISCRETE:
        points = config.feasible_points
        return (points.index(value) + 0.5) / len(points) if value in points else math.nan
    if config.type is ParameterType.INTEGER:
        low, high = config.min_value, config.max_value + 1
        return (_to_scale(config.scale, value, low, high) + _to_scale(config.scale, value + 1, low, high)) / 2
    return _to_scale(config.scale, value, config.min_value, config.max_value)


def _from_scale(scale: Scale, unit: float, low: float, high: float) -> float:
    if scale is Scale.LOG:
        return math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
    if scale is Scale.REVERSE_LOG:
        # log1p and expm1 keep the digits of 1 - value for momentum near 0 and near 1 alike.
        far, near = math.log1p(-low), math.log1p(-high)
        return -math.expm1(far + unit * (near - far))
    return low + unit * (high - low)


def _to_scale(scale: Scale, value: float, low: float, high: float) -> float:
    if low == high:
        return 0.5
    if scale is Scale.LOG:
        return math.log(value / low) / math.log(high / low) if value > 0 else math.nan
    if scale is Scale.REVERSE_LOG:
        far, near = math.log1p(-low), math.log1p(-high)
        return (math.log1p(-value) - far) / (near - far) if value < 1 else math.nan
    return (value - low) / (high - low)


_BITS = 54
"""Digits beyond this many bits do not change a double."""


def draw_points(
    space: SearchSpace, seed: int, start: int, count: int, algorithm: Algorithm = Algorithm.HALTON
) -> list[dict[str, float]]:
    """Return the metaparameter values number ``start`` to ``start + count - 1`` of a study's stream.

    The space may change between searches while the unit points stay: that is the paired design over batch sizes.
    """
    rows = unit_points(len(space), seed, start, count, algorithm)
    return [{config.name: to_value(config, float(u)) for config, u in zip(space, row, strict=True)} for row in rows]


def unit_points(
    dimension: int, seed: int, start: int, count: int, algorithm: Algorithm = Algorithm.HALTON
) -> NDArray[np.float64]:
    """Return points ``start`` to ``start + count - 1`` of a scrambled low-discrepancy sequence, one a row."""
    if dimension == 0 or count == 0:
        return np.zeros((count, dimension))
    if algorithm is Algorithm.HALTON:
        return halton_points(dimension, seed, start, count)
    from scipy.stats import qmc  # a second of import time that only this algorithm needs

    engine = qmc.Sobol(dimension, scramble=True, rng=seed)
    if start:  # scipy's Sobol cannot skip zero points
        engine.fast_forward(start)
    with warnings.catch_warnings():
        # Sobol's balance holds for powers of two only; a stream without end cannot promise one.
        warnings.filterwarnings("ignore", message="The balance properties", category=UserWarning)
        return np.asarray(engine.random(count), dtype=np.float64)


def halton_points(dimension: int, seed: int, start: int, count: int) -> NDArray[np.float64]:
    """Return points of the scrambled Halton sequence, one a row: Owen, A randomized Halton algorithm in R, 2017.

    >>> halton_points(2, seed=3, start=1, count=2).round(3).tolist()
    [[0.854, 0.578], [0.104, 0.245]]
    """
    columns = [_halton_column(digits, start, count) for digits in _shuffled_digits(dimension, seed)]
    return np.stack(columns, axis=1)


def _halton_column(shuffled: NDArray[np.int64], start: int, count: int) -> NDArray[np.float64]:
    """Mirror the numbers at the point in the base of this dimension, with the shuffled digits of every place."""
    base = shuffled.shape[1]
    remainder, share = np.arange(start, start + count), 1.0 / base
    points = np.zeros(count)
    for digits in shuffled:
        points += digits[remainder % base] * share
        remainder //= base
        share /= base
    return points


@lru_cache(maxsize=64)
def _shuffled_digits(dimension: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Return for every dimension one row of shuffled digits per place."""
    random = np.random.default_rng(seed).spawn(1)[0]  # as SciPy does with a seed
    tables = []
    for base in itertools.islice(_primes(), dimension):
        rows = np.repeat(np.arange(base)[None], math.ceil(_BITS / math.log2(base)) - 1, axis=0)
        for row in rows:
            random.shuffle(row)
        rows.flags.writeable = False  # the cache returns them again
        tables.append(rows)
    return tuple(tables)


def _primes() -> Iterator[int]:
    primes: list[int] = []
    for number in itertools.count(2):
        if all(number % prime for prime in primes):
            primes.append(number)
            yield number
