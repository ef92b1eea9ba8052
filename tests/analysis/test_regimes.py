import numpy as np
import polars as pl
import pytest

from batchscale.analysis.regimes import Thresholds, find_regimes
from batchscale.errors import AnalysisError


def curve(points):
    return pl.DataFrame({"batch_size": list(points), "steps": [float(steps) for steps in points.values()]})


PERFECT_TO_16 = {1: 1600, 2: 800, 4: 400, 8: 200, 16: 100, 32: 80, 64: 75, 128: 75}


def test_the_boundaries_of_a_plain_curve():
    found = find_regimes(curve(PERFECT_TO_16))
    assert found.perfect_scaling_end == 16
    assert (found.max_useful_batch_size, found.max_useful_reached) == (32, True)
    assert found.overhead_batch_size == 16
    assert 16 < found.critical_batch_size < 32


def test_an_unlucky_first_study_moves_only_the_papers_line():
    points = PERFECT_TO_16 | {1: 3200}
    assert find_regimes(curve(points)).perfect_scaling_end == 16
    assert find_regimes(curve(points), baseline="first").perfect_scaling_end == 32


def test_nothing_is_called_perfect_that_needs_more_than_the_tolerance_over_the_fewest_examples():
    points = PERFECT_TO_16 | {1: 800}  # whether by luck or not, batch size 2 takes twice the examples
    assert find_regimes(curve(points)).perfect_scaling_end == 1
    bends = find_regimes(curve({128: 54296.9, 512: 21777.3, 1024: 12695.3, 2048: 11181.6}))
    assert bends.perfect_scaling_end == 128
    assert bends.critical_batch_size == pytest.approx(776, rel=0.01)


def test_a_plateau_over_a_factor_four_is_an_end_whatever_its_last_pair_does():
    steps = (1200, 600, 520, 400, 360, 300, 270, 250, 340, 300, 260)
    sizes = [*(64 * 2**i for i in range(10)), 55_000]
    found = find_regimes(curve(dict(zip(sizes, steps, strict=True))))
    assert (found.max_useful_batch_size, found.max_useful_reached) == (2_048, True)


def test_a_curve_that_bends_at_once_keeps_its_first_point_as_the_line():
    points = {16: 1000, 64: 400, 256: 230, 1024: 200}
    assert find_regimes(curve(points)).perfect_scaling_end == 16


def test_tau_is_the_largest_excess_that_still_counts():
    points = {1: 1000, 2: 500, 4: 325, 8: 165}  # examples 1000, 1000, 1300, 1320
    assert find_regimes(curve(points)).perfect_scaling_end == 4
    assert find_regimes(curve(points), thresholds=Thresholds(perfect=0.29)).perfect_scaling_end == 2
    assert find_regimes(curve(points), thresholds=Thresholds(perfect=0.33)).perfect_scaling_end == 8


def test_within_twenty_percent_of_the_fewest_steps_is_useful():
    points = {1: 300, 2: 121, 4: 120, 8: 100, 16: 100}
    assert find_regimes(curve(points)).max_useful_batch_size == 4
    assert find_regimes(curve(points), thresholds=Thresholds(useful=0.21)).max_useful_batch_size == 2


@pytest.mark.parametrize(
    ("last", "reached"),
    [
        ({8: 100, 16: 90.1}, True),
        ({8: 100, 16: 89.9}, False),  # more than 10 % in the last doubling
        ({8: 100, 32: 81.1}, True),  # the same fall per doubling, over two of them
        ({8: 100, 32: 80.9}, False),
        ({4: 200, 8: 100, 9: 99}, False),  # from 4.5 to 9 it fell by almost half
    ],
)
def test_steps_that_still_fall_in_the_last_doubling_leave_the_end_open(last, reached):
    found = find_regimes(curve({1: 500, 2: 250} | last))
    assert found.max_useful_reached is reached
    if not reached:
        assert found.max_useful_batch_size == max(last)


def test_overhead_counts_examples():
    points = {1: 1000, 2: 450, 4: 260, 8: 150}  # examples 1000, 900, 1040, 1200
    assert find_regimes(curve(points)).overhead_batch_size == 4
    assert find_regimes(curve(points), thresholds=Thresholds(overhead=0.35)).overhead_batch_size == 8


def test_the_hyperbola_has_its_overhead_at_a_fifth_of_b_crit():
    sizes = np.arange(1, 400)
    found = find_regimes(curve(dict(zip(sizes.tolist(), (1000 * (1 + 100 / sizes)).tolist(), strict=True))))
    # Against the fewest examples measured (at batch size 1), not those of the limit at 0.
    assert found.overhead_batch_size == pytest.approx(0.2 * 101 + 1, abs=1)


def test_a_refused_fit_leaves_the_other_boundaries():
    found = find_regimes(curve({1: 800, 2: 400, 4: 200, 8: 100}))
    assert found.critical_batch_size is None
    assert "before the bend" in found.fit_refusal
    assert (found.perfect_scaling_end, found.max_useful_reached) == (8, False)


def test_one_point_is_refused():
    with pytest.raises(AnalysisError, match="two batch sizes"):
        find_regimes(curve({1: 10}))


@pytest.mark.parametrize("name", ["perfect", "useful", "falling", "overhead"])
def test_thresholds_are_positive_shares(name):
    with pytest.raises(AnalysisError, match=name):
        Thresholds(**{name: -0.1})
