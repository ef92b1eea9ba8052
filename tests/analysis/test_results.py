import random

import polars as pl
import pytest
import results_witness
from build_records import METRIC, NAME, make_records, study, trial, write_tree

from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.results import RESULT_SCHEMA, results_of, steps_to_result
from batchscale.errors import AnalysisError, UnknownNameError
from batchscale.records.read import read_records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

GOAL = Goal(METRIC, 0.1)


def one(records, goal=GOAL, **options):
    return steps_to_result(records, goal, **options).row(0, named=True)


def test_the_goal_is_a_strict_bound():
    records = make_records([study(8, [trial(1, {10: 0.1, 20: 0.0999})])])
    assert one(records)["steps"] == 20


def test_the_first_measurement_beyond_the_goal_counts_even_if_later_ones_are_worse():
    records = make_records([study(8, [trial(1, {10: 0.05, 20: 0.5, 30: 0.01})])])
    assert one(records)["steps"] == 10


def test_ties_go_to_the_lower_trial_id():
    records = make_records([study(8, [trial(7, {10: 0.05}), trial(3, {10: 0.01}), trial(5, {10: 0.05})])])
    assert one(records)["trial_id"] == 3


def test_only_complete_trials_count_and_all_are_counted():
    trials = [
        trial(1, {10: 0.05}, status="INFEASIBLE"),
        trial(2, {10: 0.05}, status="INCOMPLETE"),
        trial(3, {10: 0.5, 50: 0.05}),
        trial(4, {10: 0.5}),
    ]
    row = one(make_records([study(8, trials)]))
    assert (row["steps"], row["trial_id"]) == (50, 3)
    assert (row["trials"], row["reached"], row["infeasible"], row["incomplete"]) == (2, 1, 1, 1)
    assert row["share_reached"] == 0.5


@pytest.mark.parametrize(("maximize", "value"), [(False, 0.05), (True, 0.95)])
def test_nan_and_missing_values_never_reach(maximize, value):
    goal = Goal(METRIC, 0.9 if maximize else 0.1, maximize)
    records = make_records([study(8, [trial(1, {10: float("nan"), 15: None, 20: value})])])
    assert one(records, goal)["steps"] == 20


def test_a_study_that_did_not_reach_keeps_its_row():
    row = one(make_records([study(8, [trial(1, {10: 0.5})])]))
    assert row["steps"] is None
    assert row["trial_id"] is None
    assert row["trials"] == 1


def test_examples_and_epochs_stand_beside_steps():
    records = make_records([study(8, [trial(1, {10: 0.05})])])
    assert (one(records)["examples"], one(records)["epochs"]) == (80, None)
    assert one(records, num_train_examples=40)["epochs"] == 2.0


def test_the_size_of_the_papers_data_sets_is_known():
    name = WorkloadName("mnist_subsets/mnist_27500", "net", "sgd")
    records = make_records({name: [study(275, [trial(1, {200: 0.05})])]})
    assert one(records)["epochs"] == 2.0


def test_many_goals_in_one_pass_equal_each_goal_alone():
    rng = random.Random(0)
    trials = [
        trial(i, {10 * s: {METRIC: rng.random(), "train/error": rng.random()} for s in range(9)}) for i in range(1, 8)
    ]
    records = make_records([study(8, trials), study(16, trials[:3])])
    goals = [Goal(METRIC, 0.2), Goal("train/error", 0.3), Goal(METRIC, 0.05), Goal(METRIC, 0.9, maximize=True)]
    together = steps_to_result(records, goals)
    assert together.schema.names()[: len(RESULT_SCHEMA)] == list(RESULT_SCHEMA)
    for goal in goals:
        assert together.filter(pl.col("goal") == str(goal)).equals(steps_to_result(records, goal))


def test_by_splits_a_study_by_a_metaparameter():
    trials = [
        trial(1, {10: 0.05}, parameters={"label_smoothing": 0.0}),
        trial(2, {30: 0.05}, parameters={"label_smoothing": 0.1}),
        trial(3, {20: 0.05}, parameters={"label_smoothing": 0.1}),
    ]
    frame = steps_to_result(make_records([study(8, trials)]), GOAL, by=["label_smoothing"])
    assert frame.select("label_smoothing", "steps", "trial_id", "trials").rows() == [(0.0, 10, 1, 1), (0.1, 20, 3, 2)]
    with pytest.raises(AnalysisError, match="label_smoothing"):
        steps_to_result(make_records([study(8, trials)]), GOAL, by=["label_smoothin"])


def test_the_winner_brings_its_metaparameters():
    trials = [
        trial(1, {10: 0.05}, parameters={"learning_rate": 3.0}),
        trial(2, {9: 0.05}, parameters={"momentum": 0.5}),
    ]
    row = one(make_records([study(8, trials)]))
    assert (row["momentum"], row["learning_rate"]) == (0.5, None)


def test_a_metric_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"toy/net/sgd.*'val/eror'.*val/error"):
        steps_to_result(make_records([study(8, [trial(1, {10: 0.5})])]), Goal("val/eror", 0.1))


def test_float32_columns_give_what_their_texts_say():
    rows = {10: 0.01, 20: 0.24406, 30: 0.009}
    for value, steps in [(0.01, 30), (0.010000001, 10), (0.0100000000001, 10), (0.00999999999, 30)]:
        for kind in (pl.Float32, pl.Float64):
            records = make_records([study(8, [trial(1, rows)])], kind)
            assert one(records, Goal(METRIC, value))["steps"] == steps, (value, kind)
            over = make_records([study(8, [trial(1, {s: 1 - v for s, v in {10: 0.1, 20: 0.05}.items()})])], kind)
            assert one(over, Goal(METRIC, 0.9, maximize=True))["steps"] == 20


def test_a_budget_hides_what_comes_later():
    records = make_records([study(10, [trial(1, {10: 0.5, 20: 0.05})])])
    assert one(records, budget=Budget(19, Unit.STEPS))["steps"] is None
    assert one(records, budget=Budget(20, Unit.STEPS))["steps"] == 20
    assert one(records, budget=Budget(200, Unit.EXAMPLES))["steps"] == 20
    assert one(records, budget=Budget(199, Unit.EXAMPLES))["steps"] is None


def test_outcomes_tell_reached_from_not_and_from_diverged():
    trials = [
        trial(1, {10: 0.05}),
        trial(2, {10: 0.5, 90: 0.4}),
        trial(3, {10: 0.05}, status="INFEASIBLE"),
        trial(4, {10: 0.5}, status="INCOMPLETE"),
    ]
    frame = trial_outcomes(make_records([study(8, trials)]), GOAL)
    assert frame["outcome"].to_list() == [
        o.value for o in (Outcome.REACHED, Outcome.NOT_REACHED, Outcome.INFEASIBLE, Outcome.INCOMPLETE)
    ]
    assert frame["last_step"].to_list() == [10, 90, 10, 10]
    assert results_of(frame).row(0, named=True)["share_reached"] == 0.5


def generated_studies(seed):
    rng = random.Random(seed)
    studies = []
    for size in (1, 4, 64, 512):
        trials = []
        for i in range(1, 25):
            level = rng.uniform(0.02, 0.6)
            values = {
                step: {
                    METRIC: round(level + rng.uniform(0, 2) / (step + 1), 6),
                    "val/precision": round(rng.random(), 6),
                }
                for step in range(0, rng.choice([40, 60]), rng.choice([2, 5]))
            }
            if rng.random() < 0.1:
                values[max(values)][METRIC] = float("nan")
            status = rng.choice(["COMPLETE"] * 4 + ["INFEASIBLE", "INCOMPLETE"])
            trials.append(trial(i, values, status=status, parameters={"learning_rate": rng.uniform(0.01, 1)}))
        studies.append(study(size, trials, train_steps=30))
    return studies


@pytest.mark.parametrize("seed", range(3))
def test_results_equal_those_of_an_independent_implementation(tmp_path, seed):
    root = write_tree(tmp_path / "tree", generated_studies(seed))
    records = read_records(root)
    goals = [Goal(METRIC, 0.08), Goal(METRIC, 0.05), Goal(METRIC, 0.021), Goal("val/precision", 0.97, maximize=True)]
    frame = steps_to_result(records, goals)
    for goal in goals:
        rows = frame.filter(pl.col("goal") == str(goal)).select(
            "batch_size", "steps", "trial_id", "trials", "reached", "infeasible"
        )
        folder = root / NAME.dataset / NAME.model / NAME.optimizer
        expected = results_witness.steps_to_result(folder, goal.metric, goal.value, goal.maximize)
        assert {row[0]: row[1:] for row in rows.rows()} == expected
