from batchscale.search.edge_guard import Side
from batchscale.search.points import to_value
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace
from batchscale.study.next_search import TrialResult, plan_next_search

RATE = ParameterConfig("learning_rate", ParameterType.DOUBLE, 2e-3, 2e-2, Scale.LOG)
DECAY = ParameterConfig("learning_rate_decay_steps", ParameterType.INTEGER, 250, 500)


def result(trial_id, unit, reached_at, best=0.1, diverged=False, **others):
    return TrialResult(trial_id, {"learning_rate": to_value(RATE, unit), **others}, reached_at, best, diverged)


def test_six_trials_whose_best_is_the_highest_rate_tried_are_searched_again_further_up():
    units = (0.41, 0.07, 0.927, 0.21, 0.71, 0.55)
    results = [result(i, u, round(2000 * (1 - u) + 450)) for i, u in enumerate(units, 1)]
    proposal = plan_next_search(results, [SearchSpace((RATE,))], 0.05, 600)
    assert [(edge.parameter, edge.side) for edge in proposal.edges] == [("learning_rate", Side.HIGH)]
    assert proposal.space is not None and proposal.space["learning_rate"].max_value > 0.06


def test_decay_steps_are_never_searched_beyond_the_budget():
    units = (0.5, 0.45, 0.55, 0.4, 0.6, 0.35, 0.65, 0.3)
    results = [
        result(i, u, 400 + i, learning_rate_decay_steps=500 - 30 * i) for i, u in enumerate(units)
    ]  # the later the decay ends, the better
    proposal = plan_next_search(results, [SearchSpace((RATE, DECAY))], 0.05, 500)
    assert "learning_rate_decay_steps" not in {edge.parameter for edge in proposal.edges}
    further = plan_next_search(results, [SearchSpace((RATE, DECAY))], 0.05, 560)
    assert further.space is not None
    assert further.space["learning_rate_decay_steps"].max_value == 560


def test_rates_that_diverged_beyond_the_best_need_no_further_search():
    results = [result(i, u, round(1000 * (1 - u))) for i, u in enumerate((0.1, 0.3, 0.5, 0.6, 0.7, 0.8), 1)]
    assert plan_next_search(results, [SearchSpace((RATE,))], 0.05, 2000).edges
    beyond = [result(i, u, None, best=1e3, diverged=True) for i, u in enumerate((0.85, 0.9, 0.97), 7)]
    assert not plan_next_search([*results, *beyond], [SearchSpace((RATE,))], 0.05, 2000).edges


def test_a_search_that_never_reached_the_goal_moves_to_its_best_trials_not_to_diverged_ones():
    results = [result(i, u, None, best=1 - u) for i, u in enumerate((0.1, 0.2, 0.3, 0.8, 0.85, 0.9), 1)]
    diverged = [result(9, 0.05, None, best=1e-9, diverged=True)]
    proposal = plan_next_search([*results, *diverged], [SearchSpace((RATE,))], 0.05, 2000)
    assert proposal.reason == "no trial reached the goal"
    assert proposal.space is not None and proposal.space["learning_rate"].min_value > RATE.min_value
