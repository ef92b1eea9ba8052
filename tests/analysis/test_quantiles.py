"""The closed forms against SciPy, which has the same functions for any shape."""

from fractions import Fraction
from math import comb, expm1, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from batchscale.analysis.quantiles import binomial_levels, gamma_levels, gamma_quantiles, student_quantile

DIGITS = 1e-12  # SciPy's own error is a little less


@pytest.mark.parametrize("trials", [2, 3, 8, 100, 1000])
def test_binomial_levels_are_the_exact_sums(trials):
    chance = -expm1(-log(2) / trials)
    share, count = Fraction(chance), min(trials, 8)
    terms = [comb(trials, i) * share**i * (1 - share) ** (trials - i) for i in range(count)]
    exact = [float(sum(terms[: i + 1])) for i in range(count)]
    assert binomial_levels(trials, chance, count) == pytest.approx(exact, rel=DIGITS)


@pytest.mark.parametrize("shape", range(1, 9))
def test_gamma_levels_and_quantiles_are_those_of_scipy(shape):
    low = np.linspace(0.0, log(2), 201)
    assert gamma_levels(shape, low) == pytest.approx(special.gammainc(shape, low), rel=DIGITS, abs=0)
    levels = (np.arange(4096) + 0.5) / 4096
    assert gamma_quantiles(shape, levels) == pytest.approx(special.gammaincinv(shape, levels), rel=DIGITS, abs=0)


@given(st.integers(1, 3000) | st.just(1_000_000), st.floats(0.51, 0.9999))
def test_students_quantile_is_that_of_scipy_and_its_square_that_of_f(freedom, level):
    found = student_quantile(float(freedom), level)
    # SciPy's inverse of the incomplete beta function keeps eleven digits near the middle of the law.
    assert found == pytest.approx(float(special.stdtrit(freedom, level)), rel=1e-10)
    assert found**2 == pytest.approx(float(special.fdtri(1, freedom, 2 * level - 1)), rel=1e-9)
