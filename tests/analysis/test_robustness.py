import itertools
from collections import Counter

import numpy as np
import pytest
from build_records import METRIC, make_records, study, trial

from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.robustness import best_of_n, best_of_probabilities, point_stability
from batchscale.errors import AnalysisError
from batchscale.spec.goal import Goal

GOAL = Goal(METRIC, 0.1)


def outcomes(steps, not_reached=0):
    trials = [trial(i, {s: 0.05}) for i, s in enumerate(steps, 1)]
    trials += [trial(len(steps) + 1 + i, {5000: 0.5}) for i in range(not_reached)]
    return trial_outcomes(make_records([study(8, trials)]), GOAL)


@pytest.mark.parametrize(("total", "n"), [(5, 1), (5, 2), (7, 3), (6, 6)])
def test_probabilities_equal_those_of_all_subsets(total, n):
    counts = Counter(min(subset) for subset in itertools.combinations(range(total), n))
    expected = [counts[i] / sum(counts.values()) for i in range(total)]
    np.testing.assert_allclose(best_of_probabilities(total, n), expected, atol=1e-12)


def test_more_trials_than_there_are_is_refused():
    with pytest.raises(AnalysisError, match="Found 6"):
        best_of_probabilities(5, 6)


def test_quantiles_against_n_equal_those_of_all_subsets():
    steps = [10, 20, 30, 40, 50, 60]
    frame = best_of_n(outcomes(steps), counts=[1, 3, 6])
    for n, low, median, high in frame.select("n", "low", "median", "high").rows():
        minima = [min(subset) for subset in itertools.combinations(steps, n)]
        expected = np.quantile(minima, [0.05, 0.5, 0.95], method="inverted_cdf")
        assert (low, median, high) == tuple(expected)


def test_trials_that_never_reach_make_small_searches_fail():
    frame = best_of_n(outcomes([10, 20], not_reached=8), counts=[1, 10])
    assert frame["reach_probability"].to_list() == pytest.approx([0.2, 1.0])
    assert frame["median"].to_list() == [None, 10.0]


def test_all_trials_give_the_steps_to_result_for_sure():
    row = best_of_n(outcomes([30, 10, 20])).filter(n=3).row(0, named=True)
    assert (row["low"], row["median"], row["high"]) == (10, 10, 10)


@pytest.mark.parametrize(
    ("steps", "moves"),
    [([100, 101, 102, 103, 104, 105], False), ([100, 150, 200, 250, 300, 350], True), ([100, 100], True)],
)
def test_stability_says_whether_more_trials_would_move_the_point(steps, moves):
    row = point_stability(outcomes(steps, not_reached=2)).row(0, named=True)
    assert row["still_moves"] is moves


def test_a_goal_that_half_the_trials_would_often_miss_still_moves():
    assert point_stability(outcomes([100, 100, 100], not_reached=60))["still_moves"].to_list() == [True]


def test_trials_that_a_race_stopped_are_not_taken_to_have_missed_the_goal():
    trials = [trial(i, {100 + i: 0.05}) for i in range(1, 5)] + [trial(i, {105: 0.5}) for i in range(5, 101)]
    raced, full = (make_records([study(8, trials, early_stopping=early)]) for early in (True, False))
    assert point_stability(trial_outcomes(raced, GOAL), raced.studies)["still_moves"].to_list() == [False]
    assert point_stability(trial_outcomes(full, GOAL), full.studies)["still_moves"].to_list() == [True]


def test_the_stability_of_a_study_that_reached_nothing():
    assert point_stability(outcomes([], not_reached=3))["stability"].to_list() == ["no trial reached the goal"]
