import pytest
from build_records import METRIC, NAME, curve_studies, make_records, study, trial

from batchscale.analysis.goals import goal_sensitivity, suggest_goal
from batchscale.analysis.results import steps_to_result
from batchscale.errors import AnalysisError
from batchscale.spec.goal import Goal


def family_of_goals():
    """Trials whose error falls as 1/steps at every batch size: a lower goal shifts the curve and moves nothing."""
    studies = []
    for size in (1, 4, 16, 64, 256):
        scale = 1000 * (1 + 16 / size)
        rows = {round(scale * k / 20): 0.1 * 20 / k for k in range(1, 101)}
        studies.append(study(size, [trial(1, rows)], train_steps=10**6))
    return make_records(studies)


def test_goals_that_only_shift_the_curve_leave_the_boundaries():
    frame = goal_sensitivity(family_of_goals(), [Goal(METRIC, value) for value in (0.05, 0.1, 0.2)])
    assert frame["s_min"].to_list() == sorted(frame["s_min"].to_list(), reverse=True)
    assert frame["b_crit"].to_list() == pytest.approx([16, 16, 16], rel=0.1)
    assert frame["perfect_scaling_end"].n_unique() == 1


def test_a_goal_out_of_reach_is_a_row_with_its_reason():
    row = goal_sensitivity(family_of_goals(), [Goal(METRIC, 1e-9)]).row(0, named=True)
    assert (row["points"], row["missing"], row["b_crit"]) == (0, 5, None)
    assert "two batch sizes" in row["refusal"]


@pytest.mark.parametrize("maximize", [False, True])
def test_the_suggested_goal_is_the_best_that_enough_trials_pass_everywhere(maximize):
    def value(x):
        return 1 - x if maximize else x

    studies = [
        study(size, [trial(i, {10: value(0.5), 20: value(0.01 * (i + worse))}) for i in range(1, 9)])
        for size, worse in ((1, 0), (8, 3))
    ]
    records = make_records(studies)
    found = suggest_goal(records, NAME, METRIC, trials=5, maximize=maximize)
    assert found.goal.value == pytest.approx(value(0.0801 if not maximize else 0.081), abs=1e-9)
    assert min(steps_to_result(records, found.goal)["reached"]) == 5


def test_too_few_trials_for_a_goal_are_refused():
    records = make_records(curve_studies({1: 100, 2: 50}))
    with pytest.raises(AnalysisError, match="6 trials at every batch size"):
        suggest_goal(records, NAME, METRIC, trials=6)
