"""The promise of the intervals, measured: 90 % intervals cover the truth in 85 to 95 % of repetitions."""

import math

import numpy as np
import polars as pl
import pytest
from simulated_studies import B_CRIT, SHAPES, SIZES, law, simulate_curve, true_factor

from batchscale.analysis import Resampling, draw_curves, fit_scaling, point_intervals
from batchscale.analysis.intervals import critical_interval
from batchscale.analysis.scaling import fit_many

LOW, HIGH = 0.85, 0.95


def coverage(shape, trials, repetitions, finishers=None):
    """Shares of points and of critical batch sizes whose interval holds the truth."""
    rng = np.random.default_rng([trials, *shape.encode()])
    truth = law() * true_factor(shape, trials)
    points_in, critical_in = [], []
    for repetition in range(repetitions):
        points = simulate_curve(shape, trials, rng, finishers)
        resampling = Resampling(draws=500, seed=repetition)
        for interval, true_steps in zip(point_intervals(points, resampling), truth, strict=True):
            points_in.append(interval.low <= true_steps <= (interval.high or math.inf))
        curve = pl.DataFrame({"batch_size": [p.batch_size for p in points], "steps": [p.steps for p in points]})
        drawn = fit_many(np.log(SIZES), np.log(draw_curves(points, resampling)), fit_scaling(curve).best.family)
        b_crit = critical_interval(drawn, SIZES, resampling)
        critical_in.append((b_crit.low or 0) <= B_CRIT <= (b_crit.high or math.inf))
    return np.mean(points_in), np.mean(critical_in)


@pytest.mark.parametrize(("shape", "trials"), [("one_plus_exponential", 20), ("bowl_2d", 100)])
def test_intervals_cover_in_a_short_simulation(shape, trials):
    repetitions = 60
    points, critical = coverage(shape, trials, repetitions)
    # Three binomial standard errors beyond the promise, with 8 points a repetition.
    slack = 3 * math.sqrt(0.9 * 0.1 / repetitions)
    assert LOW - slack / math.sqrt(8) < points < HIGH + slack / math.sqrt(8)
    assert LOW - slack < critical <= 1


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("trials", [20, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_cover_in_500_repetitions(shape, trials):
    points, critical = coverage(shape, trials, 500)
    assert LOW <= points <= HIGH
    assert LOW <= critical <= HIGH


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", ["one_plus_exponential", "bowl_2d"])
def test_intervals_cover_when_a_race_kept_only_four_finishers(shape):
    points, critical = coverage(shape, 100, 500, finishers=4)
    assert LOW <= points <= HIGH
    assert critical >= LOW
