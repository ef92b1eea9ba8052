"""Families are chosen by evidence, and points that no law describes are named."""

import math
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import f as f_law

from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.families import Family
from batchscale.analysis.optimal import NOT_SHOWN, SMALLEST_IS_CHEAPEST
from batchscale.analysis.quantiles import f_tail

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from law_coverage import Cell, measure

SIZES = 2.0 ** np.arange(3, 12)


def summarize(sizes, steps):
    rows = [(int(size), float(value)) for size, value in zip(sizes, steps, strict=True)]
    schema = {"batch_size": pl.Int64, "steps": pl.Float64}
    return analyze_points(pl.DataFrame(rows, schema=schema, orient="row")).summary


def test_the_tail_of_f_equals_scipys():
    for value in (0.01, 0.3, 1.0, 2.5, 10.0, 40.0):
        for first, second in ((1, 1), (2, 3), (3, 7), (5, 30), (9, 500)):
            assert f_tail(value, first, second) == pytest.approx(float(f_law.sf(value, first, second)), rel=1e-9)


def test_steps_that_fall_and_rise_by_far_have_no_critical_batch_size():
    steps = [8000.0, 4100, 2000, 1300, 1500, 2500, 4000, 6500, 9000]
    summary = summarize(SIZES, steps)
    assert summary.misfit is not None
    assert summary.misfit.error > 0.35
    assert (summary.critical.value, summary.critical.low, summary.critical.high) == (None, None, None)
    assert "No curve" in summary.fit_refusal
    assert not summary.regimes.last_doubling_gain.has_interval


def test_runs_whose_spread_is_far_below_the_misfit_have_no_critical_batch_size():
    wave = 1e5 / SIZES * (1 + SIZES / 200) * np.where(np.arange(9) % 3 == 0, 1.6, 1.0)
    for noise, is_misfit in ((0.01, True), (0.4, False)):
        rng = np.random.default_rng(5)
        runs = [(s, v * math.exp(noise * rng.normal())) for s, v in zip(SIZES, wave, strict=True) for _ in range(4)]
        assert (summarize(*zip(*runs, strict=True)).misfit is not None) is is_misfit


def test_a_straight_line_is_a_power_law_and_no_misfit():
    rng = np.random.default_rng(0)
    summary = summarize(SIZES, 1e5 * SIZES**-0.5 * np.exp(0.01 * rng.normal(size=9)))
    assert summary.fit.best.family is Family.POWER
    assert summary.misfit is None
    assert not summary.critical.has_interval
    assert "without a bend" in summary.fit_refusal


def test_the_optimal_size_and_its_band_are_those_of_the_law():
    truth = lambda b: 1 + b / 640 + 10 / b  # noqa: E731 # B_opt = 80
    summary = summarize(SIZES, 1e6 / SIZES * truth(SIZES) * np.exp(0.005 * np.random.default_rng(1).normal(size=9)))
    optimal = summary.optimal
    assert optimal.batch_size.value == pytest.approx(80, rel=0.05)
    assert optimal.batch_size.low < 80 < optimal.batch_size.high
    for end in optimal.band:
        assert truth(end) / truth(80) == pytest.approx(1.05, abs=0.01)


def test_a_missing_optimal_size_has_a_true_reason():
    plain = summarize(SIZES, 1e6 / SIZES * (1 + SIZES / 200))
    assert (plain.optimal.batch_size.value, plain.optimal.reason) == (None, SMALLEST_IS_CHEAPEST)
    wiggle = np.ones(9)
    wiggle[0] = 1.08  # one point by less than its noise
    noisy = np.exp(0.1 * np.random.default_rng(2).normal(size=9))
    shaky = summarize(SIZES, 1e6 / SIZES * (1 + SIZES / 600) * wiggle * noisy)
    if shaky.optimal.batch_size.value is None and shaky.regimes.cheapest != 8:
        assert shaky.optimal.reason == NOT_SHOWN


def test_no_interval_excludes_its_value():
    rng = np.random.default_rng(6)
    for _ in range(40):
        count = int(rng.integers(3, 9))
        steps = 1e5 / SIZES[:count] ** rng.uniform(0.2, 1.2) * np.exp(0.3 * rng.normal(size=count))
        summary = summarize(SIZES[:count], steps)
        regimes = summary.regimes
        estimates = [summary.critical, summary.optimal.batch_size, regimes.perfect_scaling_end, regimes.useful]
        estimates += [regimes.last_doubling_gain, *(point.examples_ratio for point in summary.points)]
        for each in estimates:
            if each.value is not None:
                assert (each.low is None or each.low <= each.value) and (each.high is None or each.value <= each.high)


@pytest.mark.parametrize("truth", ["hyperbola", "left_branch", "iso_loss", "sharp"])
def test_intervals_cover_truths_of_every_family(truth):
    repetitions = 40
    shares = measure(Cell(truth, 8, 0.05), repetitions)
    slack = 3 * math.sqrt(0.9 * 0.1 / repetitions)
    assert shares.critical > 0.85 - slack
    assert shares.optimal > 0.85 - slack


def test_three_points_cover_at_a_fifth_of_noise():
    assert measure(Cell("hyperbola", 3, 0.2), 60).critical > 0.85 - 3 * math.sqrt(0.09 / 60)  # 70 % before


def test_steps_counted_in_evaluations_are_no_more_exact_than_their_spacing():
    rng = np.random.default_rng(8)
    truth = 1000 * (1 + 60 / SIZES)
    inside = 0
    for _ in range(40):
        steps = np.ceil(truth * np.exp(0.02 * rng.normal(size=9)) / 400) * 400
        critical = summarize(SIZES, steps).critical
        inside += (critical.low or 0) <= 60 <= (critical.high or math.inf)
    assert inside / 40 > 0.85 - 3 * math.sqrt(0.09 / 40)
