import numpy as np
import polars as pl
import pytest

from batchscale.analysis.curve_analysis import AnalysisOptions, analyze_points
from batchscale.analysis.regimes import (
    DEFAULT_THRESHOLDS,
    Baseline,
    PlateauStatus,
    Regime,
    RegimeSpan,
    Thresholds,
    last_doubling,
)
from batchscale.errors import AnalysisError


def summarize(points, baseline="robust", thresholds=DEFAULT_THRESHOLDS):
    curve = pl.DataFrame({"batch_size": list(points), "steps": [float(steps) for steps in points.values()]})
    return analyze_points(curve, AnalysisOptions(Baseline(baseline), thresholds)).summary


def find_regimes(points, **options):
    return summarize(points, **options).regimes


PERFECT_TO_16 = {1: 1600, 2: 800, 4: 400, 8: 200, 16: 100, 32: 80, 64: 75, 128: 75}


def test_the_boundaries_of_a_plain_curve():
    summary = summarize(PERFECT_TO_16)
    found = summary.regimes
    assert found.perfect_end == 16
    assert (found.max_useful_batch_size, found.max_useful_reached) == (32, True)
    assert found.overhead_batch_size == 16
    assert 16 < summary.critical.value < 32


def test_an_unlucky_first_study_moves_only_the_papers_line():
    points = PERFECT_TO_16 | {1: 3200}
    assert find_regimes(points).perfect_end == 16
    assert find_regimes(points, baseline="first").perfect_end == 32


def test_nothing_is_called_perfect_that_needs_more_than_the_tolerance_over_the_fewest_examples():
    points = PERFECT_TO_16 | {1: 800}  # whether by luck or not, batch size 2 takes twice the examples
    assert find_regimes(points).perfect_end == 1
    bends = summarize({128: 54296.9, 512: 21777.3, 1024: 12695.3, 2048: 11181.6})
    assert bends.regimes.perfect_end == 128
    assert bends.critical.value == pytest.approx(776, rel=0.01)


def test_a_plateau_over_a_factor_four_is_an_end_whatever_its_last_pair_does():
    steps = (1200, 600, 520, 400, 360, 300, 270, 250, 340, 300, 260)
    sizes = [*(64 * 2**i for i in range(10)), 55_000]
    found = find_regimes(dict(zip(sizes, steps, strict=True)))
    assert (found.max_useful_batch_size, found.max_useful_reached) == (2_048, True)


def test_a_curve_that_bends_at_once_keeps_its_first_point_as_the_line():
    points = {16: 1000, 64: 400, 256: 230, 1024: 200}
    assert find_regimes(points).perfect_end == 16


def test_tau_is_the_largest_excess_that_still_counts():
    points = {1: 1000, 2: 500, 4: 325, 8: 165}  # examples 1000, 1000, 1300, 1320
    assert find_regimes(points).perfect_end == 4
    assert find_regimes(points, thresholds=Thresholds(perfect=0.29)).perfect_end == 2
    assert find_regimes(points, thresholds=Thresholds(perfect=0.33)).perfect_end == 8


def test_within_twenty_percent_of_the_fewest_steps_is_useful():
    points = {1: 300, 2: 121, 4: 120, 8: 100, 16: 100}
    assert find_regimes(points).max_useful_batch_size == 4
    assert find_regimes(points, thresholds=Thresholds(useful=0.21)).max_useful_batch_size == 2


@pytest.mark.parametrize(
    ("last", "still_fall"),
    [
        ({8: 100, 16: 90.1}, False),
        ({8: 100, 16: 89.9}, True),  # more than 10 % in the last doubling
        ({8: 100, 32: 81.1}, False),  # the same gain per doubling, over two of them
        ({8: 100, 32: 80.9}, True),
        ({4: 200, 8: 100, 9: 99}, True),  # from 4.5 to 9 it fell by almost half
    ],
)
def test_the_gain_of_the_last_doubling_is_interpolated_between_measured_sizes(last, still_fall):
    sizes, steps = (np.array(column, float) for column in zip(*({1: 500, 2: 250} | last).items(), strict=True))
    assert (1 - last_doubling(sizes, steps) > 0.1) is still_fall
    regimes = find_regimes({1: 500, 2: 250} | last)
    gain = regimes.last_doubling_gain
    assert regimes.measured_gain == pytest.approx(1 - last_doubling(sizes, steps))
    assert gain.low <= gain.value <= gain.high
    assert not (regimes.max_useful_reached and still_fall)
    if not regimes.max_useful_reached:
        assert regimes.max_useful_batch_size == max(last)


@pytest.mark.parametrize(
    ("largest", "plateau"),
    # On 1 + 1/x the last doubling gains 10 % at x = 8, in units of B_crit.
    [(7.5, PlateauStatus.FALLING), (8.0, PlateauStatus.OPEN), (8.5, PlateauStatus.REACHED)],
)
def test_steps_of_a_hyperbola_fall_up_to_eight_times_the_critical_batch_size(largest, plateau):
    sizes = [round(1000 * largest / 2**i) for i in range(9)][::-1]
    regimes = find_regimes({size: 1000 * (1 + 1000 / size) for size in sizes})
    assert regimes.plateau is plateau
    assert regimes.max_useful_reached is (plateau is PlateauStatus.REACHED)


def test_a_regime_spans_from_where_the_one_before_ends():
    regimes = find_regimes(PERFECT_TO_16)
    assert regimes.spans() == (
        RegimeSpan(Regime.PERFECT, 1, 16),
        RegimeSpan(Regime.DIMINISHING, 16, 32),
        RegimeSpan(Regime.MAXIMAL, 32, 128),
    )
    assert [regimes.regime_of(size) for size in (1, 16, 32, 64)] == [
        Regime.PERFECT,
        Regime.PERFECT,
        Regime.DIMINISHING,
        Regime.MAXIMAL,
    ]


def test_sizes_that_cost_more_before_the_cheapest_belong_to_no_regime():
    regimes = find_regimes(PERFECT_TO_16 | {1: 3200})
    assert regimes.regime_of(1) is None
    ends = regimes.perfect_scaling_end
    assert ends.value == 16
    assert regimes.spans()[:2] == (
        RegimeSpan(Regime.PERFECT, 2, ends.low),
        RegimeSpan(Regime.UNDECIDED, ends.low, ends.high),
    )


def test_sizes_too_close_together_are_not_called_perfect():
    regimes = find_regimes({15360: 47.0, 16384: 46.83, 18432: 46.5})
    assert {span.regime for span in regimes.spans()} == {Regime.UNDECIDED}


def test_overhead_counts_examples():
    points = {1: 1000, 2: 450, 4: 260, 8: 150}  # examples 1000, 900, 1040, 1200
    assert find_regimes(points).overhead_batch_size == 4
    assert find_regimes(points, thresholds=Thresholds(overhead=0.35)).overhead_batch_size == 8


def test_the_hyperbola_has_its_overhead_at_a_fifth_of_b_crit():
    sizes = np.arange(1, 400)
    found = find_regimes(dict(zip(sizes.tolist(), (1000 * (1 + 100 / sizes)).tolist(), strict=True)))
    # Against the fewest examples measured (at batch size 1), not those of the limit at 0.
    assert found.overhead_batch_size == pytest.approx(0.2 * 101 + 1, abs=1)


def test_a_refused_fit_leaves_the_other_boundaries():
    summary = summarize({1: 800, 2: 400, 4: 200, 8: 100})
    assert summary.critical.value is None
    assert "before the bend" in summary.fit_refusal
    assert (summary.regimes.perfect_end, summary.regimes.max_useful_reached) == (8, False)


def test_one_point_is_refused():
    answer = analyze_points(pl.DataFrame({"batch_size": [1], "steps": [10.0]}))
    assert answer.summary is None
    assert "two batch sizes" in answer.refusal


@pytest.mark.parametrize("name", ["perfect", "useful", "falling", "overhead"])
def test_thresholds_are_positive_shares(name):
    with pytest.raises(AnalysisError, match=name):
        Thresholds(**{name: -0.1})
