import pytest
from build_records import METRIC, make_records, study, trial

from batchscale.analysis.metaparameters import (
    Heuristic,
    add_effective_learning_rate,
    heuristic_errors,
    heuristic_sentence,
    judge_heuristics,
)
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of
from batchscale.errors import AnalysisError
from batchscale.spec.goal import Goal

GOAL = Goal(METRIC, 0.1)


def errors(rate_at, momentum=0.5):
    """Trials at rates 2^-6 … 2^6 around the best one, slower the further off."""
    studies = []
    for size in (1, 4, 16, 64):
        trials = [
            trial(
                i + 7,
                {100 + 50 * abs(i): 0.05},
                parameters={"learning_rate": rate_at(size) * 2.0**i * (1 - momentum), "momentum": momentum},
            )
            for i in range(-6, 7)
        ]
        studies.append(study(size, trials))
    outcomes = trial_outcomes(make_records(studies), GOAL)
    return heuristic_errors(results_of(outcomes), outcomes)


@pytest.mark.parametrize(("power", "best"), [(1.0, Heuristic.LINEAR), (0.5, Heuristic.SQUARE_ROOT)])
def test_the_heuristic_that_made_the_rates_is_found_exact(power, best):
    fits = judge_heuristics(errors(lambda size: 0.1 * size**power))
    assert fits[0].heuristic is best
    assert fits[0].rms_log2 == pytest.approx(0, abs=1e-9)
    assert fits[0].close_up_to == 64
    assert fits[1].close_up_to == 4
    assert fits[1].worst_factor == pytest.approx(8)
    assert "square-root" in heuristic_sentence(fits)


def test_the_slowdown_is_that_of_the_trials_near_the_prediction():
    frame = errors(lambda size: 0.1)
    linear = frame.filter(heuristic="linear")
    # At batch size 16 the linear rule says 16 times the best rate: the trial four doublings off took 300 steps.
    assert linear["factor"].to_list() == pytest.approx([1, 4, 16, 64])
    assert linear["slowdown"].to_list() == pytest.approx([1, 2, 3, 4])


def test_the_effective_rate_divides_by_one_minus_momentum():
    frame = results_of(
        trial_outcomes(make_records([study(1, [trial(1, {5: 0.05}, parameters={"learning_rate": 0.3})])]), GOAL)
    )
    assert add_effective_learning_rate(frame)["effective_learning_rate"].to_list() == [0.3]


def test_trials_without_a_learning_rate_are_refused():
    outcomes = trial_outcomes(make_records([study(1, [trial(1, {5: 0.05}, parameters={"beta1": 0.3})])]), GOAL)
    with pytest.raises(AnalysisError, match="effective_learning_rate"):
        heuristic_errors(results_of(outcomes), outcomes)
