import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from batchscale.analysis.families import Family, bounds, iso_loss_exponents, log_critical, log_curves, log_optimal
from batchscale.analysis.least_squares import fit_family
from batchscale.analysis.scaling import fit_scaling
from batchscale.errors import AnalysisError

SIZES = 2.0 ** np.arange(12)


def curve(steps, sizes=SIZES):
    return pl.DataFrame({"batch_size": sizes, "steps": steps})


def law(b_crit, k=1.0, s_min=100.0, sizes=SIZES):
    return s_min * (1 + (b_crit / sizes) ** k) ** (1 / k)


@settings(deadline=None, max_examples=50)  # another process may hold the core
@given(b_crit=st.floats(4, 512), s_min=st.floats(1, 1e7))
def test_an_exact_hyperbola_is_found_exactly(b_crit, s_min):
    fit = fit_scaling(curve(law(b_crit, s_min=s_min)))
    assert fit.best.family is Family.HYPERBOLA
    assert fit.b_crit == pytest.approx(b_crit, rel=1e-5)
    assert fit.s_min == pytest.approx(s_min, rel=1e-5)
    assert fit.e_min == pytest.approx(s_min * b_crit, rel=1e-5)


@settings(deadline=None, max_examples=50)  # another process may hold the core
@given(b_crit=st.floats(8, 256), k=st.floats(1.5, 8))
def test_an_exact_sharp_law_is_found_and_chosen(b_crit, k):
    fit = fit_scaling(curve(law(b_crit, k)))
    assert fit.best.family is Family.SHARP
    assert fit.b_crit == pytest.approx(b_crit, rel=1e-3)
    assert fit.best.sharpness == pytest.approx(k, rel=1e-2)


def test_the_fit_equals_that_of_a_second_code():
    rng = np.random.default_rng(0)
    for _ in range(10):
        steps = law(64) * np.exp(0.1 * rng.normal(size=12))
        (log_s, log_b), _ = curve_fit(
            lambda x, s, b: s + np.log1p(np.exp(b - x)), np.log(SIZES), np.log(steps), p0=[4, 4]
        )
        plain = fit_scaling(curve(steps)).families[0]
        assert plain.b_crit == pytest.approx(math.exp(log_b), rel=1e-4)
        assert plain.s_min == pytest.approx(math.exp(log_s), rel=1e-4)
        assert plain.rms_log == pytest.approx(
            np.sqrt(np.mean((np.log(steps) - np.log(plain.steps(SIZES))) ** 2)), rel=1e-9
        )


def test_the_sharp_family_is_never_worse_than_its_member():
    rng = np.random.default_rng(1)
    for _ in range(20):
        fits = fit_scaling(curve(law(64) * np.exp(0.2 * rng.normal(size=12)))).families
        plain, sharp = (
            next(fit for fit in fits if fit.family is family) for family in (Family.HYPERBOLA, Family.SHARP)
        )
        assert sharp.rms_log <= plain.rms_log * (1 + 1e-9)


def test_noise_on_a_hyperbola_seldom_calls_for_the_sharp_family():
    rng = np.random.default_rng(2)
    chosen = [fit_scaling(curve(law(64) * np.exp(0.1 * rng.normal(size=12)))).best.family for _ in range(40)]
    assert chosen.count(Family.SHARP) <= 8


def test_fewer_than_three_points_are_refused():
    with pytest.raises(AnalysisError, match=r"3 batch sizes or more\. Found 2"):
        fit_scaling(pl.DataFrame({"batch_size": [1, 2, 4], "steps": [4, 2, None]}))


def test_points_on_one_side_are_refused_with_the_side():
    rng = np.random.default_rng(5)
    for noise in (0.0, 0.05):
        wiggle = np.exp(noise * rng.normal(size=12))
        with pytest.raises(AnalysisError, match="Measure larger sizes"):
            fit_scaling(curve(1e6 / SIZES * wiggle))
        with pytest.raises(AnalysisError, match="Measure smaller sizes"):
            fit_scaling(curve(np.full(12, 100.0) * wiggle))


def test_a_batch_size_that_stands_twice_is_refused():
    with pytest.raises(AnalysisError, match="Found 2 more than once"):
        fit_scaling(pl.DataFrame({"batch_size": [1, 2, 2, 4], "steps": [4, 2, 3, 1]}))


@settings(deadline=None, max_examples=30)
@given(family=st.sampled_from(list(Family)), place=st.lists(st.floats(0.25, 0.75), min_size=3, max_size=3))
def test_an_exact_law_of_any_family_is_found(family, place):
    logs = np.log(SIZES)
    at = logs[0] + np.array(place) * (logs[-1] - logs[0])
    laws = {
        Family.HYPERBOLA: [at[0]],
        Family.SHARP: [at[0], math.log(3)],
        Family.LEFT_BRANCH: [at[0], at[0] - 1 - 3 * place[1]],
        Family.ISO_LOSS: [at[0] + 2, at[0], 0.5 - place[2]],
        Family.POWER: [place[0]],
    }
    law_row = np.array([laws[family]])
    exact = log_curves(family, law_row, logs)[0]
    if not np.isfinite(exact).all():
        return
    fit = fit_family(family, logs, 5 + exact, np.ones(len(logs)))
    assert fit.rms_log < 1e-3
    if family is not Family.POWER:
        assert fit.b_crit == pytest.approx(math.exp(float(log_critical(family, law_row)[0])), rel=0.02)


@pytest.mark.parametrize("family", [family for family in Family if family is not Family.POWER])
def test_b_crit_is_where_the_slope_is_a_half_and_b_opt_where_it_is_one(family):
    rng = np.random.default_rng(0)
    low, high = bounds(family, np.log(SIZES[3:9]))
    for row in low + (high - low) * rng.random((200, len(low))):
        laws = row[None]
        for log_size, slope in ((log_critical(family, laws)[0], -0.5), (log_optimal(family, laws)[0], -1.0)):
            if np.isfinite(log_size):
                before, after = log_curves(family, laws, np.array([log_size - 1e-5, log_size + 1e-5]))[0]
                # Closer to the pole of an iso-loss law a difference says nothing of the slope.
                is_far = family is not Family.ISO_LOSS or iso_loss_exponents(laws)[1][0] > 0.3
                if np.isfinite(before) and is_far:
                    assert (after - before) / 2e-5 == pytest.approx(slope, abs=2e-3)


@pytest.mark.parametrize("exponent", [0.3, 0.5, 0.8])
def test_a_straight_line_has_no_critical_batch_size(exponent):
    rng = np.random.default_rng(3)
    for _ in range(10):
        steps = 1e5 * SIZES**-exponent * np.exp(0.01 * rng.normal(size=12))
        with pytest.raises(AnalysisError, match=f"power -{exponent:.1f}"):
            fit_scaling(curve(steps))


def test_a_left_branch_is_found_where_examples_fall_first_and_not_where_they_only_rise():
    rng = np.random.default_rng(4)
    sizes = 32.0 * 2.0 ** np.arange(6)
    chosen = {True: 0, False: 0}
    for _ in range(30):
        for left in chosen:
            examples = 1 + sizes / 700 + (25 / sizes if left else 0.0)
            fit = fit_scaling(curve(1e6 / sizes * examples * np.exp(0.02 * rng.normal(size=6)), sizes))
            chosen[left] += fit.best.family.has_left_branch
    assert chosen[True] == 30
    assert chosen[False] <= 3  # odds of 4.5 to 1 are asked for
