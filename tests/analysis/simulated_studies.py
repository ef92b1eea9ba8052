"""Studies of a known law: steps of a trial = S(B) times a random factor >= 1, some trials never reaching the goal."""

import functools

import numpy as np

from batchscale.analysis.intervals import Finishers, StudyPoint


def bowl(dimensions):
    """A quadratic bowl in the coordinates of a random search: what tuning that many metaparameters looks like."""
    return lambda rng, size: 1 + 10 * ((rng.random((*size, dimensions)) - 0.4) ** 2).sum(axis=-1)


SHAPES = {
    "one_plus_exponential": lambda rng, size: 1 + rng.exponential(size=size),
    "narrow_exponential": lambda rng, size: 1 + 0.1 * rng.exponential(size=size),
    "lognormal_above_one": lambda rng, size: np.exp(np.abs(rng.normal(size=size))),
    "one_plus_lognormal": lambda rng, size: 1 + np.exp(rng.normal(size=size)),
    "pareto": lambda rng, size: rng.random(size) ** -0.5,
    "bowl_1d": bowl(1),
    "bowl_2d": bowl(2),
    "bowl_3d": bowl(3),
}
REACH = 0.7
SIZES = 2.0 ** np.arange(0, 16, 2)
B_CRIT = 128.0
S_MIN = 1e6  # large, so that whole steps do not matter


def law(sizes=SIZES):
    return S_MIN * (1 + B_CRIT / sizes)


@functools.cache
def factor_quantiles(shape):
    return np.sort(SHAPES[shape](np.random.default_rng(99), (2_000_000,)))


def true_factor(shape, trials):
    """The median over searches of the least factor among the trials that reach the goal, by the quantile function."""
    chance = (1 - 2 ** (-1 / trials)) / REACH
    values = factor_quantiles(shape)
    return values[int(chance * len(values))]


def simulate_curve(shape, trials, rng, finishers=None):
    """The points of one experiment; with ``finishers`` only so many lowest are known, as in a race."""
    points = []
    for size, level in zip(SIZES, law(), strict=True):
        steps = np.sort(level * SHAPES[shape](rng, (trials,)))[:trials]
        steps = np.sort(steps[rng.random(trials) < REACH])[:finishers]
        points.append(StudyPoint(int(size), round(steps[0]), Finishers(steps, trials)))
    return points
