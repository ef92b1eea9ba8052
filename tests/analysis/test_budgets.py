import pytest
from build_records import METRIC, NAME, make_records, study, trial

from batchscale.analysis.budgets import best_measurement, best_per_trial, budget_steps
from batchscale.errors import AnalysisError
from batchscale.spec.durations import Budget, Unit


def records():
    return make_records(
        [
            study(1, [trial(1, {10: 0.5, 100: 0.4, 1000: 0.1}), trial(2, {10: 0.45, 100: 0.45})], train_steps=1000),
            study(10, [trial(1, {10: 0.3, 100: 0.2})], train_steps=100),
        ]
    )


def test_the_best_value_within_a_step_budget_with_ties_to_the_earlier_step():
    frame = best_measurement(records(), METRIC, Budget(100, Unit.STEPS))
    assert frame.select("batch_size", "value", "step", "trial_id").rows() == [(1, 0.4, 100, 1), (10, 0.2, 100, 1)]
    tied = make_records([study(1, [trial(5, {30: 0.1}), trial(6, {10: 0.5, 20: 0.1, 30: 0.1})], train_steps=30)])
    assert best_measurement(tied, METRIC).select("step", "trial_id").rows() == [(20, 6)]


def test_a_batch_size_enters_a_budget_only_if_it_was_trained_that_far():
    assert best_measurement(records(), METRIC, Budget(101, Unit.STEPS))["batch_size"].to_list() == [1]
    assert best_measurement(records(), METRIC, Budget(1000, Unit.EXAMPLES))["batch_size"].to_list() == [1, 10]
    assert best_measurement(records(), METRIC, Budget(1001, Unit.EXAMPLES)).is_empty()


def test_epochs_need_the_size_of_the_training_set():
    with pytest.raises(AnalysisError, match=r"epochs.*'toy'"):
        best_measurement(records(), METRIC, Budget(1, Unit.EPOCHS))
    frame = best_measurement(records(), METRIC, Budget(2, Unit.EPOCHS), num_train_examples=50)
    assert frame.select("batch_size", "limit", "value").rows() == [(1, 100.0, 0.4), (10, 10.0, 0.3)]


def test_several_budgets_come_in_their_order():
    frame = best_measurement(records(), METRIC, [Budget(100, Unit.STEPS), Budget(10, Unit.STEPS)])
    assert frame.select("batch_size", "budget", "value").rows() == [
        (1, "10 steps", 0.45),
        (1, "100 steps", 0.4),
        (10, "10 steps", 0.3),
        (10, "100 steps", 0.2),
    ]


def test_a_study_with_a_time_budget_is_judged_by_the_median_steps_of_its_trials():
    trials = [trial(i, {10: 0.5}, steps=steps) for i, steps in enumerate([100, 200, 900], 1)]
    timed = make_records([study(1, trials, train_steps=0)])
    assert budget_steps(timed, Budget(200, Unit.STEPS))["enters"].to_list() == [True]
    assert budget_steps(timed, Budget(201, Unit.STEPS))["enters"].to_list() == [False]


def test_maximised_metrics_and_diverged_values():
    frame = make_records([study(1, [trial(1, {1: 0.5, 2: float("nan"), 3: float("inf"), 4: 0.7})])])
    assert best_measurement(frame, METRIC, maximize=True)["value"].to_list() == [0.7]
    assert best_per_trial(frame, NAME, METRIC)["value"].to_list() == [0.5]


def test_by_gives_one_row_per_value():
    trials = [trial(i, {10: 0.1 * i}, parameters={"label_smoothing": s}) for i, s in enumerate([0.0, 0.1, 0.1], 1)]
    frame = best_measurement(make_records([study(1, trials, train_steps=10)]), METRIC, by=["label_smoothing"])
    assert frame.select("label_smoothing", "trial_id").rows() == [(0.0, 1), (0.1, 2)]
