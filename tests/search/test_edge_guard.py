import math

import pytest
from edge_guard import TRUTHS, mistakes

from batchscale.search.edge_guard import RankedTrial, Side, find_edges, propose_space
from batchscale.search.points import to_value
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace

RATE = ParameterConfig("learning_rate", ParameterType.DOUBLE, 2e-3, 2e-2, Scale.LOG)
OTHER = ParameterConfig("beta2", ParameterType.DOUBLE, 0.9, 0.9999, Scale.REVERSE_LOG)
SPACE = SearchSpace((RATE,))


def trial(unit, score, other=0.5):
    return RankedTrial({"learning_rate": to_value(RATE, unit), "beta2": to_value(OTHER, other)}, (score,))


def ends(trials, space=SPACE, margin=0.05):
    return [(edge.parameter, edge.side) for edge in find_edges([space], trials, margin)]


def test_the_highest_of_six_rates_is_at_the_edge_though_not_within_five_percent_of_it():
    trials = [trial(unit, -unit) for unit in (0.07, 0.21, 0.4, 0.55, 0.71, 0.927)]  # 0.927: a rate of 0.0169
    assert trials[-1].values["learning_rate"] == pytest.approx(0.0169, rel=1e-3)
    assert ends(trials) == [("learning_rate", Side.HIGH)]


def test_a_distance_that_is_near_among_six_trials_is_far_among_a_hundred():
    few = [trial(unit, abs(unit - 0.8)) for unit in (0.05, 0.2, 0.35, 0.5, 0.65, 0.8)]
    many = [trial(i / 100, abs(i / 100 - 0.8)) for i in range(101)]
    assert ends(few) == [("learning_rate", Side.HIGH)]
    assert ends(many) == []


def test_a_metaparameter_that_does_not_matter_is_not_searched_again():
    space = SearchSpace((RATE, OTHER))
    units = [0.5, 0.3, 0.62, 0.8, 0.2, 0.45, 0.71, 0.1, 0.9, 0.38, 0.55, 0.66]
    others = [0.99, 0.4, 0.1, 0.97, 0.6, 0.02, 0.3, 0.8, 0.5, 0.95, 0.2, 0.7]
    trials = [trial(u, abs(u - 0.5), o) for u, o in zip(units, others, strict=True)]
    assert ends(trials, space) == []


def test_diverged_trials_beyond_the_best_close_the_end():
    open_end = [trial(unit, -unit) for unit in (0.1, 0.3, 0.5, 0.6, 0.7, 0.8)]
    assert ends(open_end) == [("learning_rate", Side.HIGH)]
    closed = [*open_end, trial(0.85, math.inf), trial(0.9, math.inf), trial(0.97, math.inf)]
    assert ends(closed) == []


def test_trials_that_are_equally_good_say_nothing_about_an_end():
    trials = [trial(unit, 20.0) for unit in (0.98, 0.1, 0.3, 0.5, 0.7, 0.9)]
    assert ends(trials) == []


def test_a_margin_of_zero_switches_the_guard_off_and_no_trials_have_no_edge():
    trials = [trial(unit, -unit) for unit in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)]
    assert ends(trials, margin=0) == []
    assert ends([]) == []


def test_an_end_that_a_later_search_reached_beyond_is_none():
    trials = [trial(unit, -unit) for unit in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)]
    (edge,) = find_edges([SPACE], trials)
    moved = propose_space(SPACE, [edge])
    worse = [RankedTrial({"learning_rate": to_value(moved["learning_rate"], u)}, (1 + u,)) for u in (0.6, 0.7, 0.9)]
    assert find_edges([SPACE, moved], [*trials, *worse]) == ()


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda truth: truth.name)
def test_simulated_studies_with_a_known_optimum(truth):
    # 60 studies: a true share of 10 % shows above 22 % in one run of a thousand
    found = mistakes(truth, trials=50, studies=60)
    assert found["new missed"] <= 0.22
    assert found["new needless"] <= 0.22
    if truth.outside:
        assert found["new missed"] <= found["old missed"]
