import time

import numpy as np
import pytest
from simulated_studies import simulate_curve

from batchscale.analysis.confidence_set import find_confidence_set
from batchscale.analysis.intervals import (
    EXPONENTS,
    ONE_FINISHER,
    Finishers,
    Resampling,
    StudyPoint,
    draw_steps,
    order_levels,
    point_intervals,
    pool_exponents,
)
from batchscale.analysis.noise import trial_noise
from batchscale.analysis.scaling import fit_families
from batchscale.errors import AnalysisError

EVEN = np.full(len(EXPONENTS), 1 / len(EXPONENTS))


def point(values, trials=100, spacing=0, batch_size=1):
    return StudyPoint(batch_size, int(min(values)), Finishers(np.array(values, float), trials), spacing)


def test_confidence_at_the_order_statistics_is_binomial():
    rng = np.random.default_rng(0)
    for trials in (20, 100):
        ranks = np.sort(rng.random((50_000, trials)), axis=1)[:, :4]
        median_of_the_minimum = 1 - 0.5 ** (1 / trials)
        measured = (ranks > median_of_the_minimum).mean(axis=0)
        levels, places = order_levels(trials, 4)
        np.testing.assert_allclose(levels[np.isin(places, range(4))], measured, atol=0.01)  # 4 standard errors


def test_levels_between_order_statistics_grow():
    levels, places = order_levels(50, 6)
    assert (np.diff(levels) >= 0).all()
    assert (np.diff(levels)[:20] > 0).all()
    assert (np.diff(places) > 0).all()


def test_the_measured_minimum_is_the_median_of_what_a_fresh_search_finds():
    study = Finishers(np.array([100.0, 110, 130, 150, 200]), 50)
    drawn = draw_steps(study, EVEN, 20_000, np.random.default_rng(0))
    assert np.mean(drawn < 100) == pytest.approx(0.5, abs=0.015)


def test_intervals_do_not_depend_on_the_unit_of_steps():
    values = np.array([100.0, 110, 130, 150, 200])
    one, many = (
        draw_steps(Finishers(values * unit, 50), EVEN, 1000, np.random.default_rng(0)) for unit in (1.0, 1000.0)
    )
    np.testing.assert_allclose(many, one * 1000, rtol=1e-9)


def test_more_spread_among_the_best_gives_a_wider_interval():
    tight, wide = (point_intervals([point([1000, 1000 + s, 1000 + 3 * s, 1000 + 6 * s])])[0] for s in (10, 100))
    assert wide.high - wide.low > 5 * (tight.high - tight.low)


def test_one_finisher_has_no_interval_and_says_why():
    (interval,) = point_intervals([point([500])])
    assert (interval.low, interval.high) == (None, None)
    assert interval.reason == ONE_FINISHER


def test_two_finishers_of_a_race_have_an_interval():
    (interval,) = point_intervals([point([500, 520])])
    assert interval.low < 500 < 520 < interval.high


def test_two_finishers_far_apart_bound_nothing_from_above_and_say_so():
    (interval,) = point_intervals([point([100, 3000])])
    assert interval.low >= 1
    assert interval.high is None
    assert "from above" in interval.reason


def test_the_interval_reaches_back_to_the_measurement_before_the_winner():
    (blind,) = point_intervals([point([1000, 1001, 1002, 1003])])
    (honest,) = point_intervals([point([1000, 1001, 1002, 1003], spacing=250)])
    assert blind.low > 950
    assert honest.low == 750


def test_ties_on_the_evaluation_grid_give_an_interval_of_its_spacing():
    (interval,) = point_intervals([point([500, 500, 500, 500], spacing=100)])
    assert (interval.low, interval.high) == (400, 500)


def test_the_pool_finds_the_exponent_of_the_tail():
    rng = np.random.default_rng(1)
    for exponent in (0.5, 1.0, 4.0):
        studies = [Finishers(np.exp(1 + 0.5 * rng.exponential(size=100) ** (1 / exponent)), 100) for _ in range(40)]
        weights = pool_exponents(studies)
        mean = np.exp((weights * np.log(EXPONENTS)).sum())
        assert exponent / 1.6 < mean < exponent * 1.6


def test_the_same_seed_gives_the_same_intervals():
    points = simulate_curve("bowl_2d", 20, np.random.default_rng(0))
    assert point_intervals(points) == point_intervals(points)
    assert point_intervals(points, Resampling(seed=1)) != point_intervals(points)


def test_a_thousand_resamples_of_fifteen_studies_take_less_than_half_a_second():
    rng = np.random.default_rng(0)
    points = [point(1e6 / 2**i * (1 + rng.exponential(size=70)), batch_size=2**i) for i in range(15)]
    start = time.process_time()
    point_intervals(points)
    sizes, steps = (np.array([float(getattr(p, name)) for p in points]) for name in ("batch_size", "steps"))
    noise = trial_noise(points)
    find_confidence_set(sizes, steps, noise, 0.9, fit_families(np.log(sizes), np.log(steps), noise))
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("options", [{"level": 1.0}, {"level": 0.0}, {"draws": 10}])
def test_impossible_resampling_is_refused(options):
    with pytest.raises(AnalysisError):
        Resampling(**options)
