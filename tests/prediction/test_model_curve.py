"""The batch sizes of a model's curve are those that the analysis reads from measured points."""

import pytest

from batchscale.prediction.model_curve import read_model_curve, with_interval


def test_a_curve_with_a_floor_and_a_noise_limit_has_both_sizes():
    def steps(size):
        return None if size <= 8 else 100 * (1 + 64 / (size - 8))

    sizes = read_model_curve(steps)
    examples = {size: size * steps(size) for size in range(9, 400)}
    assert sizes.optimal == pytest.approx(min(examples, key=examples.get), rel=0.15)
    assert sizes.critical > sizes.optimal


def test_a_model_that_reaches_its_goal_nowhere_has_a_reason():
    sizes = read_model_curve(lambda _size: None)
    assert sizes.critical is None and "no batch size" in sizes.reason


def test_an_interval_needs_most_resampled_values_and_holds_the_value():
    assert with_interval(5.0, [4.0] * 20).low == 4.0 and with_interval(5.0, [4.0] * 20).high >= 5.0
    assert not with_interval(5.0, [4.0] * 10 + [None] * 10).has_interval
    assert with_interval(None, [4.0] * 20).value is None
