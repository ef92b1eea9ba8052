"""Easier goals: laws with a known truth, and the goals that a trial's own measurements give."""

import math

import numpy as np
import pytest

from batchscale.analysis.intervals import Estimate
from batchscale.prediction.easier_goals import (
    GoalPoint,
    easier_goals,
    easier_goals_prediction,
    extrapolate,
    steps_to,
)
from batchscale.spec.goal import Goal

GOAL = Goal.parse("val/loss < 1.0")


def points(rng, exponent, truth, error, shares=(0.25, 1 / 6, 1 / 9)):
    """Critical batch sizes of easier goals on a power law, with errors that they share, as goals of one study do."""
    common = rng.normal(0, error)
    made = []
    for share in shares:
        value = truth * share**exponent * math.exp(common + rng.normal(0, error / 4))
        made.append(
            GoalPoint(GOAL, share, Estimate(value, value * math.exp(-1.645 * error), value * math.exp(1.645 * error)))
        )
    return made


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.5, 0.9])
def test_intervals_cover_the_truth_for_exponents_in_the_published_range(exponent):
    rng = np.random.default_rng(3)
    covered = np.mean([extrapolate(points(rng, exponent, 400.0, 0.2)).includes(400.0) for _ in range(1000)])
    assert covered > 0.85, covered


def test_exact_points_on_a_law_give_its_value():
    exact = points(np.random.default_rng(0), 0.7, 400.0, 1e-9, shares=(0.25, 0.05, 0.01))
    assert extrapolate(exact).value == pytest.approx(400, rel=0.02)


def test_a_goal_without_an_interval_counts_little():
    good = GoalPoint(GOAL, 0.25, Estimate(100.0, 90.0, 110.0))
    vague = GoalPoint(GOAL, 0.25, Estimate(1.0, None, None))
    assert extrapolate([good, vague]).value == pytest.approx(200, rel=0.1)


def test_goals_are_what_the_trial_had_reached_and_easier():
    values = {0: 9.0, 10: 5.0, 20: 4.0, 40: 2.0, 100: 0.9}
    goals = easier_goals(values, 100, GOAL, (0.4, 0.2, 0.1))
    assert [goal.value for goal in goals] == pytest.approx([2.002, 4.004, 5.005])
    assert [steps_to(values, goal) for goal in goals] == [40, 20, 10]
    assert easier_goals({100: 0.9}, 100, GOAL) == []


def test_a_metric_to_maximise_has_goals_below_the_asked_one():
    goals = easier_goals({10: 0.5, 40: 0.8, 100: 0.95}, 100, Goal.parse("val/accuracy > 0.9"), (0.4, 0.1))
    assert all(goal.maximize and goal.value < 0.9 for goal in goals)
    assert [steps_to({10: 0.5, 40: 0.8}, goal) for goal in goals] == [40, 10]


def test_without_any_point_the_reason_is_stated():
    prediction = easier_goals_prediction([], 10, 100)
    assert prediction.estimate.value is None and prediction.reason and prediction.trial_steps == 10


def test_an_interval_over_a_factor_of_a_hundred_is_no_prediction():
    vague = [GoalPoint(GOAL, 0.2, Estimate(4.0, None, None))]
    prediction = easier_goals_prediction(vague, 10, 100)
    assert prediction.estimate.value is None and "says nothing" in prediction.reason
