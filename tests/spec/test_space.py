import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import SpecError
from batchscale.spec.space import (
    ParameterConfig,
    ParameterType,
    Scale,
    SearchSpace,
    check_bounds,
    check_value,
    convert_half_lives,
)

PUBLISHED = json.loads(
    """{
    "end_learning_rate_factor": {"max_value": 0.1, "min_value": 0.0001, "scale": "LOG_SCALE", "type": "DOUBLE"},
    "label_smoothing": {"feasible_points": [0.0, 0.01, 0.1], "type": "DISCRETE"},
    "learning_rate": {"max_value": 10.0, "min_value": 0.0001, "scale": "LOG_SCALE", "type": "DOUBLE"},
    "learning_rate_decay_steps": {"max_value": 600000, "min_value": 300000, "scale": "", "type": "INTEGER"},
    "momentum": {"max_value": 0.9999, "min_value": 0.9, "scale": "REVERSE_LOG_SCALE", "type": "DOUBLE"}
    }"""
)


def test_the_published_space_is_read_and_written_unchanged():
    space = SearchSpace.from_json(PUBLISHED)
    assert space.to_json() == PUBLISHED
    assert json.dumps(space.to_json(), sort_keys=True) == json.dumps(PUBLISHED, sort_keys=True)
    assert space["momentum"].scale is Scale.REVERSE_LOG
    assert space["learning_rate_decay_steps"].type is ParameterType.INTEGER


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        ({"min_value": 2, "max_value": 1}, "min_value must not be above max_value"),
        ({"min_value": 0, "max_value": 1, "scale": "LOG_SCALE"}, "LOG_SCALE needs min_value > 0"),
        ({"min_value": -1, "max_value": 1, "scale": "LOG_SCALE"}, "LOG_SCALE needs min_value > 0"),
        ({"min_value": 0.5, "max_value": 1, "scale": "REVERSE_LOG_SCALE"}, "max_value < 1"),
        ({"min_value": 0, "max_value": math.inf}, "finite"),
        ({"min_value": math.nan, "max_value": 1}, "finite"),
        ({"max_value": 1}, "finite min_value and max_value"),
        ({"min_value": "a", "max_value": 1}, "min_value must be a number"),
        ({"min_value": True, "max_value": 1}, "min_value must be a number"),
        ({"min_value": 0, "max_value": 10**400}, "must fit a float"),
        ({"min_value": 0, "max_value": 1, "scale": "LOGARITHMIC"}, "scale must be one of LINEAR_SCALE"),
        ({"min_value": 0, "max_value": 1, "type": "FLOAT"}, "type must be one of DOUBLE"),
        ({"min_value": 0.5, "max_value": 1, "type": "INTEGER"}, "whole numbers"),
        ({"min_value": 0, "max_valeu": 1}, "unknown key 'max_valeu'; did you mean 'max_value'"),
        ({"type": "DISCRETE"}, "feasible_points"),
        ({"type": "DISCRETE", "feasible_points": [1, 1]}, "differ"),
        ({"type": "DISCRETE", "feasible_points": 3}, "list of numbers"),
        ({"type": "DISCRETE", "feasible_points": [math.inf]}, "finite"),
        ("0..1", "table of keys"),
    ],
)
def test_an_impossible_range_is_refused_with_its_rule_and_its_name(config, rule):
    with pytest.raises(SpecError, match=rule) as caught:
        SearchSpace.from_json({"my_rate": config})
    assert "my_rate" in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
)
keys = st.sampled_from(["type", "scale", "min_value", "max_value", "feasible_points", "else"])


@given(json_values | st.dictionaries(st.text(max_size=5), st.dictionaries(keys, json_values, max_size=5), max_size=3))
def test_any_json_is_a_space_or_a_clear_refusal(value):
    try:
        space = SearchSpace.from_json(value)
    except SpecError as error:
        assert "\n" not in str(error)
    else:
        assert SearchSpace.from_json(space.to_json()) == space


def test_a_config_contains_its_ends_and_integers_only_whole_numbers():
    config = ParameterConfig("n", ParameterType.INTEGER, 1, 3)
    assert config.contains(1) and config.contains(3) and not config.contains(2.5) and not config.contains(4)


@pytest.mark.parametrize("value", [1e308, 5e-324, 1e-38, -1.0, 0.0, math.nan, math.inf])
def test_a_learning_rate_that_32_bit_numbers_cannot_hold_is_refused(value):
    with pytest.raises(SpecError, match="'learning_rate' must"):
        check_value("learning_rate", value)
    if value > 0 and math.isfinite(value):
        ends = sorted([value, 1.0])
        with pytest.raises(SpecError, match="in its range"):
            check_bounds(ParameterConfig("learning_rate", ParameterType.DOUBLE, *ends, Scale.LOG))


def test_values_of_any_use_are_accepted():
    for name, value in [("learning_rate", 1e-30), ("weight_decay", 0.0), ("epsilon", 1e-20), ("unknown", -1e30)]:
        check_value(name, value)


@given(st.floats(1e-30, 1e30), st.integers(1, 2**40))
def test_a_half_life_becomes_a_factor_below_one_that_32_bits_keep_apart_from_it(half_life, tokens):
    converted = convert_half_lives({"beta2_half_life": half_life, "epsilon": 1e-8}, tokens)
    assert converted.keys() == {"beta2", "epsilon"}
    assert 0 <= np.float32(converted["beta2"]) < 1


@pytest.mark.parametrize("steps", [1, 3, 17])
def test_a_half_life_is_what_an_average_keeps_half_of(steps):
    factor = convert_half_lives({"momentum_half_life": 64.0 * steps}, tokens_per_step=64)["momentum"]
    assert factor**steps == pytest.approx(0.5, rel=1e-12)
