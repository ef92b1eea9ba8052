"""Probabilities and quantiles that intervals need, in closed forms of whole degrees of freedom.

SciPy has them all, and its import takes as long as the rest of an analysis (decision 127). Tests compare every one with
SciPy to twelve digits.
"""

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from batchscale.analysis.curves import Array

_SPACING = 0.02  # of the table that inverting a gamma law starts from
_ROUNDS = 5  # of Newton's method, which doubles the digits of the table each time
_MOST_FREEDOM = 1e5  # of an F distribution: beyond it the second degrees of freedom do not matter
_TERMS = 2000  # of a continued fraction
_FINITE = 1000  # degrees of freedom up to which Student's sum is taken term by term


def binomial_levels(trials: int, chance: float, count: int) -> Array:
    """Return P(X <= i) for i = 0, 1, … below ``count``, of X binomial.

    >>> binomial_levels(2, 0.5, 2).tolist()
    [0.25, 0.75]
    """
    terms = [math.exp(trials * math.log1p(-chance))]
    for i in range(count - 1):
        terms.append(terms[-1] * (trials - i) / (i + 1) * chance / (1 - chance))
    return np.cumsum(terms)


def gamma_levels(shape: int, at: Array) -> Array:
    """Return P(G <= x) of a gamma law of whole shape and scale 1, for x below about the shape.

    A sum without cancellation.

    >>> gamma_levels(1, np.array([0.0, math.log(2)])).round(15).tolist()
    [0.0, 0.5]
    """
    term = _density(shape + 1, at)
    total, factor = term.copy(), shape
    while (term > total * 1e-17).any():
        factor += 1
        term = term * at / factor
        total += term
    return np.asarray(total)


def gamma_quantiles(shape: int, levels: Array) -> Array:
    """Return the quantiles of a gamma law of whole shape: a table of it, then Newton's method."""
    table = np.arange(0.0, shape + 10 * math.sqrt(shape) + 40, _SPACING)
    at = np.interp(levels, 1 - _tail(shape, table), table)
    for _ in range(_ROUNDS):
        at = at - ((1 - levels) - _tail(shape, at)) / _density(shape, at)
    return np.asarray(at)


def _tail(shape: int, at: Array) -> Array:
    """P(G > x) = e^-x Σ x^j / j! over j below the shape."""
    term = np.exp(-at)
    total = term.copy()
    for j in range(1, shape):
        term = term * at / j
        total += term
    return np.asarray(total)


def _density(shape: int, at: Array) -> Array:
    return np.asarray(at ** (shape - 1) * np.exp(-at) / math.factorial(shape - 1))


@lru_cache(maxsize=4096)
def student_quantile(freedom: float, level: float) -> float:
    """Return the quantile of Student's law above its middle; ``freedom`` is a whole number.

    From the normal quantile, which lies below, Newton's method climbs to it without overshooting, since the law's
    distribution function is concave there. Far out (Abramowitz and Stegun 26.7.5) an expansion in 1/freedom has all
    digits.

    >>> round(student_quantile(1, 0.75), 12), round(student_quantile(2, 0.975), 9)
    (1.0, 4.30265273)
    """
    normal = NormalDist().inv_cdf(level)
    if freedom > _FINITE:
        return _far_quantile(normal, freedom)
    whole = round(freedom)
    at, scale = normal, _density_at_0(whole)
    for _ in range(200):
        step = (level - _student_level(at, whole)) / (scale * (1 + at * at / whole) ** (-(whole + 1) / 2))
        at += step
        if abs(step) <= 4e-16 * at:
            break
    return at


def _density_at_0(freedom: int) -> float:
    return math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)


def _student_level(at: float, freedom: int) -> float:
    """Abramowitz and Stegun 26.7.3 and 26.7.4: a sum of (freedom - 1) / 2 terms."""
    cosine = freedom / (freedom + at * at)  # squared
    odd = freedom % 2
    term = total = 0.0 if freedom == 1 else (math.sqrt(cosine) if odd else 1.0)
    for j in range(2 + odd, freedom - 1, 2):
        term *= cosine * (j - 1) / j
        total += term
    sine = at / math.sqrt(freedom + at * at)
    if odd:
        return 0.5 + (math.atan(at / math.sqrt(freedom)) + sine * total) / math.pi
    return 0.5 + sine * total / 2


def f_tail(value: float, first: float, second: float) -> float:
    """Return P(F > value) of the F distribution: the incomplete beta function by its continued fraction (Lentz).

    >>> round(f_tail(1.0, 4, 4), 12), round(f_tail(4.0, 1, 1e9), 4)
    (0.5, 0.0455)
    """
    second = min(second, _MOST_FREEDOM)
    at = second / (second + first * value)
    if at > (second / 2 + 1) / (second / 2 + first / 2 + 2):
        return 1 - _beta_level(first / 2, second / 2, 1 - at)
    return _beta_level(second / 2, first / 2, at)


def _beta_level(a: float, b: float, x: float) -> float:
    """Numerical Recipes 6.4: the regularised incomplete beta function for x below its turning point."""
    if x <= 0:
        return 0.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, _TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + term * d), 1 + term / c
            total *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * total


def _far_quantile(x: float, freedom: float) -> float:
    terms = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / freedom**power for power, term in enumerate(terms, 1))
