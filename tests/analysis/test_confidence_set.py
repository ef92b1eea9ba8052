"""The set of laws that a curve allows, against a second code and closed forms."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import f as f_law
from simulated_studies import simulate_curve

from batchscale.analysis.confidence_set import find_confidence_set
from batchscale.analysis.families import SHARPEST, Family
from batchscale.analysis.intervals import EXPONENTS, Finishers, StudyPoint, noise_variance
from batchscale.analysis.noise import (
    ASSUMED,
    Noise,
    NoiseSource,
    residual_noise,
    resolution_variance,
    run_noise,
    shrink,
    trial_noise,
)
from batchscale.analysis.scaling import fit_families

SIZES = 2.0 ** np.arange(0, 12)
LEVEL = 0.9


def law(b_crit, k=1.0, s_min=100.0, sizes=SIZES):
    return s_min * (1 + (b_crit / sizes) ** k) ** (1 / k)


def sharp_set(steps, noise=None):
    """The part of the set that laws of the sharp family make up."""
    noise = noise or residual_noise(len(SIZES))
    fit = fit_families(np.log(SIZES), np.log(steps), noise)
    sharp = next(each for each in fit.families if each.family is Family.SHARP)
    return find_confidence_set(SIZES, steps, noise, LEVEL, dataclasses.replace(fit, best=sharp, allowed=(sharp,)))


def least_squares(steps, b_crit, sizes=SIZES):
    """The least sum of squares at one B_crit over S_min and k, by scipy."""

    def squares(log_k):
        k = math.exp(log_k)
        rest = np.log(steps) - np.logaddexp(0, k * np.log(b_crit / sizes)) / k
        return float(((rest - rest.mean()) ** 2).sum())

    starts = np.linspace(0, math.log(SHARPEST), 9)
    best = int(np.argmin([squares(x) for x in starts]))
    low, high = starts[max(best - 1, 0)], starts[min(best + 1, 8)]
    return min(float(minimize_scalar(squares, bounds=(low, high), method="bounded").fun), squares(0.0))


@pytest.mark.parametrize(("k", "noise"), [(1.0, 0.1), (2.0, 0.1), (3.0, 0.02), (1.5, 0.3)])
def test_the_interval_of_b_crit_is_the_profile_interval_of_a_second_code(k, noise):
    steps = law(64, k) * np.exp(noise * np.random.default_rng(7).normal(size=12))
    low, high = sharp_set(steps).critical_range()
    centre = minimize_scalar(lambda x: least_squares(steps, math.exp(x)), bounds=(2, 6), method="bounded")
    bound = centre.fun * (1 + f_law.ppf(LEVEL, 1, 9) / 9)
    want = [
        math.exp(brentq(lambda x: least_squares(steps, math.exp(x)) - bound, centre.x + side, centre.x))
        for side in (-3, 3)
    ]
    # The set is read off a grid of a few hundred laws: a few hundredths of its width.
    width = math.log(want[1] / want[0])
    assert math.log(low / want[0]) == pytest.approx(0, abs=0.05 * width)
    assert math.log(high / want[1]) == pytest.approx(0, abs=0.05 * width)


def test_curves_without_noise_still_have_a_width():
    low, high = sharp_set(law(64)).critical_range()
    assert low < 64 < high
    assert high / low < 1.02


def test_the_interval_shrinks_with_the_noise_down_to_a_hundredth():
    rng = np.random.default_rng(3)
    wiggle = rng.normal(size=12)
    widths = []
    for noise in (0.3, 0.1, 0.03, 0.01):
        steps = law(64, 2) * np.exp(noise * wiggle)
        low, high = sharp_set(steps).critical_range()
        widths.append(math.log(high / low))
    assert all(narrow < wide / 2 for wide, narrow in itertools.pairwise(widths))


def test_steps_of_the_set_include_the_law_anywhere():
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(100):
        laws = sharp_set(law(64) * np.exp(0.1 * rng.normal(size=12)))
        low, high = laws.steps_range(2.0**14)
        inside += low <= float(law(64, sizes=np.array([2.0**14]))[0]) <= high
    assert inside / 100 > 0.9 - 3 * math.sqrt(0.09 / 100)


def test_three_points_have_an_assumed_noise():
    noise = residual_noise(3)
    assert noise.source is NoiseSource.ASSUMED
    assert noise.variances.tolist() == [ASSUMED**2] * 3
    # The normal quantile of 90 %, squared.
    assert noise.bound(0.0, 0, LEVEL) == pytest.approx(2.7055, rel=1e-3)


def test_runs_pool_their_spread_and_weigh_by_their_number():
    rng = np.random.default_rng(0)
    groups = [rng.normal(size=count) for count in (2, 5, 9)]
    noise = run_noise(groups)
    pooled = sum(((g - g.mean()) ** 2).sum() for g in groups) / 13
    assert noise.freedom == 13
    np.testing.assert_allclose(noise.variances, [pooled / 2, pooled / 5, pooled / 9])
    assert run_noise([np.zeros(1), np.ones(1), np.ones(2), np.ones(1)]).source is NoiseSource.RESIDUALS


def test_a_misfit_beyond_the_noise_widens_the_set():
    known = Noise(NoiseSource.TRIALS, np.full(8, 0.01), 50.0)
    assert known.bound(5.0, 5, LEVEL) - 5.0 == pytest.approx(f_law.ppf(LEVEL, 1, 55))
    assert known.bound(50.0, 5, LEVEL) - 50.0 == pytest.approx((8 + 50) / (8 + 5) * f_law.ppf(LEVEL, 1, 55))


def test_the_noise_of_a_search_is_the_mean_square_of_its_minimum_about_its_median():
    rng = np.random.default_rng(2)
    trials, exponent = 50, 7  # place in EXPONENTS
    weights = np.eye(len(EXPONENTS))[exponent]
    power = 1 / EXPONENTS[exponent]
    draws = np.sort(rng.exponential(size=(4000, trials)) ** power, axis=1)
    want = ((draws[:, 0] - math.log(2) ** power * trials**-power) ** 2).mean()
    found = [noise_variance(Finishers(np.exp(row), trials), weights) for row in draws[:1000]]
    assert np.mean(found) == pytest.approx(want, rel=0.1)  # 4 standard errors of a thousand studies


def test_resolution_is_the_mean_square_of_a_uniform_place():
    rng = np.random.default_rng(4)
    for share in (0.1, 0.5, 1.0):
        places = 1 - share * rng.random(400_000)
        assert resolution_variance(share) == pytest.approx((np.log(places) ** 2).mean(), rel=0.02)


def test_equal_variances_are_drawn_together_and_different_ones_are_kept():
    rng = np.random.default_rng(6)
    alike = rng.chisquare(7, size=12) / 7
    assert np.ptp(np.log(shrink(alike, 2 / 7))) < 0.5 * np.ptp(np.log(alike))
    apart = np.array([1e-4, 1e-4, 1.0, 1.0])
    np.testing.assert_allclose(np.log(shrink(apart, 0.1)), np.log(apart), atol=1.0)


def test_studies_with_one_finisher_have_the_noise_of_the_others_and_too_few_have_residuals():
    points = simulate_curve("bowl_2d", 50, np.random.default_rng(0))
    lone = StudyPoint(points[3].batch_size, points[3].steps, Finishers(points[3].finishers.steps[:1], 50))
    mixed = trial_noise([*points[:3], lone, *points[4:]])
    assert mixed.source is NoiseSource.TRIALS
    others = np.delete(mixed.variances, 3)
    assert others.min() <= mixed.variances[3] <= others.max()
    raced = simulate_curve("bowl_2d", 50, np.random.default_rng(0), finishers=1)
    assert trial_noise(raced).source is NoiseSource.RESIDUALS
