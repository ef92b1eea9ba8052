"""Quasi-random points: one stream per study, the k-th point a pure function of (seed, space, k).

Nothing is kept between calls: asking for more later continues the stream, and a resumed search draws what an
uninterrupted one would have drawn.
"""

import warnings

import numpy as np
from numpy.typing import NDArray

from batchscale.search.halton import halton_points
from batchscale.search.units import to_value
from batchscale.spec.experiment import Algorithm
from batchscale.spec.space import SearchSpace


def unit_points(
    dimension: int, seed: int, start: int, count: int, algorithm: Algorithm = Algorithm.HALTON
) -> NDArray[np.float64]:
    """Points ``start`` to ``start + count - 1`` of a scrambled low-discrepancy sequence, one a row."""
    if dimension == 0 or count == 0:
        return np.zeros((count, dimension))
    if algorithm is Algorithm.HALTON:
        return halton_points(dimension, seed, start, count)
    from scipy.stats import qmc  # a second of import time that only this algorithm needs

    engine = qmc.Sobol(dimension, scramble=True, rng=seed)
    if start:  # scipy's Sobol cannot skip zero points
        engine.fast_forward(start)
    with warnings.catch_warnings():
        # Sobol's balance holds for powers of two only; a stream that may go on for ever cannot promise one.
        warnings.filterwarnings("ignore", message="The balance properties", category=UserWarning)
        return np.asarray(engine.random(count), dtype=np.float64)


def draw_points(
    space: SearchSpace, seed: int, start: int, count: int, algorithm: Algorithm = Algorithm.HALTON
) -> list[dict[str, float]]:
    """Metaparameter values number ``start`` to ``start + count - 1`` of a study's stream.

    The space may change between searches while the unit points stay: that is the paired design over batch sizes.
    """
    rows = unit_points(len(space), seed, start, count, algorithm)
    return [{config.name: to_value(config, float(u)) for config, u in zip(space, row, strict=True)} for row in rows]
