import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.search.points import to_unit, to_value
from batchscale.spec.space import ParameterConfig, ParameterType, Scale

units = st.floats(0, 1)


def double(low, high, scale=Scale.LINEAR):
    return ParameterConfig("x", ParameterType.DOUBLE, low, high, scale)


@st.composite
def double_configs(draw):
    scale = draw(st.sampled_from(Scale))
    if scale is Scale.REVERSE_LOG:
        far, near = draw(st.floats(1e-3, 1)), draw(st.floats(1e-7, 9e-4))
        return double(1 - far, 1 - near, scale)
    low = draw(st.floats(1e-9, 10))
    return double(low, low * draw(st.floats(1.5, 1e9)), scale)


@given(double_configs(), units)
def test_value_and_unit_undo_each_other_for_double(config, unit):
    value = to_value(config, unit)
    assert config.contains(value)
    assert to_unit(config, value) == pytest.approx(unit, abs=1e-7)


@given(st.integers(-1000, 1000), st.integers(0, 5000), units, st.sampled_from([Scale.LINEAR, Scale.LOG]))
def test_every_unit_gives_a_whole_number_that_maps_back_to_itself(low, width, unit, scale):
    low = abs(low) + 1 if scale is Scale.LOG else low
    config = ParameterConfig("n", ParameterType.INTEGER, low, low + width, scale)
    value = to_value(config, unit)
    assert config.contains(value)
    assert to_value(config, to_unit(config, value)) == value


def test_integers_are_equally_likely_on_a_linear_scale():
    config = ParameterConfig("n", ParameterType.INTEGER, 3, 6)
    drawn = [to_value(config, (i + 0.5) / 4000) for i in range(4000)]
    assert {n: drawn.count(n) for n in (3, 4, 5, 6)} == dict.fromkeys((3, 4, 5, 6), 1000)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8, unique=True), units)
def test_feasible_points_map_back_to_themselves(points, unit):
    config = ParameterConfig("d", ParameterType.DISCRETE, feasible_points=tuple(points))
    value = to_value(config, unit)
    assert value in points
    assert to_value(config, to_unit(config, value)) == value


@pytest.mark.parametrize("near", [1e-4, 1e-6, 1e-9, 1e-12])
def test_reverse_log_keeps_the_digits_of_one_minus_the_value(near):
    config = double(0.0, 1 - near, Scale.REVERSE_LOG)
    top = config.max_value
    middle = to_value(config, 0.5)
    assert 1 - middle == pytest.approx(math.sqrt(1 - top), rel=1e-6)
    assert to_value(config, 1.0) == top
    assert to_unit(config, 0.0) == 0.0


def test_log_scale_is_uniform_in_the_logarithm():
    config = double(1e-4, 1e2, Scale.LOG)
    assert [to_value(config, i / 6) for i in range(7)] == pytest.approx([10.0**p for p in range(-4, 3)], rel=1e-12)


def test_reverse_log_of_the_published_momentum_range():
    config = double(0.9, 0.9999, Scale.REVERSE_LOG)
    assert [to_value(config, i / 3) for i in range(4)] == pytest.approx([0.9, 0.99, 0.999, 0.9999], abs=1e-12)


def test_values_outside_the_range_lie_outside_the_unit_interval():
    assert to_unit(double(1, 2), 3) == 2
    assert math.isnan(to_unit(double(1, 2, Scale.LOG), -1))
    assert math.isnan(to_unit(double(0.5, 0.9, Scale.REVERSE_LOG), 1.5))
    assert math.isnan(to_unit(ParameterConfig("d", ParameterType.DISCRETE, feasible_points=(1.0,)), 2.0))
