import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import SpecError
from batchscale.spec.goal import Goal


def test_a_goal_is_passed_strictly():
    goal = Goal.parse("val/classification_error < 0.03")
    assert not goal.is_reached_by(0.03)
    assert goal.is_reached_by(math.nextafter(0.03, 0))
    assert not goal.is_reached_by(math.nan)


def test_a_goal_to_maximise_is_passed_from_below():
    goal = Goal.parse("val/average_precision>.31")
    assert goal.maximize
    assert goal.is_reached_by(0.32) and not goal.is_reached_by(0.31)
    assert (goal.split, goal.metric_name) == ("val", "average_precision")


@given(st.sampled_from(["train", "val", "test"]), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_text_and_goal_undo_each_other(split, value, maximize):
    goal = Goal.parse(f"{split}/loss {'>' if maximize else '<'} {value:.12g}")
    assert Goal.parse(str(goal)) == goal


@pytest.mark.parametrize(
    "text",
    ["", "val/error", "val/error < ", "val/error < x", "error < 0.1", "dev/error < 1", "val/error <= 0.1",
     "val/error < nan", "val/error < inf", "val/error < 1e999", "val/error < 0.1 < 0.2", 3, None, ["val/e < 1"],
     "val/error < 0.1" + " " * 300],
)  # fmt: skip
def test_what_is_no_goal_is_refused_with_an_example(text):
    with pytest.raises(SpecError, match=r"val/classification_error < 0\.1"):
        Goal.parse(text)


@given(st.text())
def test_any_text_is_a_goal_or_a_clear_refusal(text):
    try:
        Goal.parse(text)
    except SpecError as error:
        assert "\n" not in str(error)
