import pytest
from build_records import METRIC, SPACE, make_records, study, trial

from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of, steps_to_result, winner_edges, winner_spacing
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal

GOAL = Goal(METRIC, 0.1)


HIGHER = {"learning_rate": SPACE["learning_rate"] | {"min_value": 0.1, "max_value": 1000.0}}


def judged(records: Records, goal=GOAL):
    outcomes = trial_outcomes(records, goal)
    return winner_edges(records, outcomes, results_of(outcomes)).row(0, named=True)


def flags(learning_rate, **options):
    trials = [trial(5, {10: 0.05}, parameters={"learning_rate": learning_rate}), trial(6, {10: 0.5})]
    return judged(make_records([study(8, trials, **options)]))


def test_the_winner_is_flagged_near_an_end_of_its_range():
    # LOG range 0.001 to 10: four decades, so 0.1 is in the middle and 9 within 5 % of the top.
    assert flags(0.1)["at_edge"] is False
    assert flags(0.1)["edge_distance"] == pytest.approx(0.5)
    row = flags(9.0)
    assert (row["at_edge"], row["edge"]) == (True, "learning_rate high")


@pytest.mark.parametrize("second", [4, 7])  # the winner, trial 5, is of the second or of the first search
def test_an_end_that_another_search_went_beyond_is_no_edge(second):
    own = {"searches": [{"space": SPACE, "first_trial_id": 1}, {"space": HIGHER, "first_trial_id": second}]}
    row = flags(9.0, own=own)
    assert row["at_edge"] is False
    assert (row["searches"], row["extra_searches"]) == (2, True)
    assert flags(0.11, own=own)["at_edge"] is False
    row = flags(900.0, own=own)
    assert (row["at_edge"], row["edge"]) == (True, "learning_rate high")


@pytest.mark.parametrize("goal", [str(GOAL), "val/error < 0.2", None])
def test_at_edge_means_the_same_for_every_goal(goal):
    """What stands in the records is not asked: the trials at hand are judged, as the run judged them for its goal."""
    stored = [{"parameter": "learning_rate", "side": "low"}]
    own = {"format_version": 2, "finding": {"goal_reached": True, "at_edge": stored}} | ({"goal": goal} if goal else {})
    assert flags(0.1, own=own)["at_edge"] is False
    assert flags(9.0, own=own)["edge"] == "learning_rate high"


def test_the_margin_is_that_of_the_run():
    # 9 lies 1.1 % of the range below its top
    assert flags(9.0, own={"format_version": 2, "edge_margin": 0.01})["at_edge"] is False
    assert flags(9.0, own={"format_version": 2, "edge_margin": 0.02})["at_edge"] is True
    assert flags(9.0, own={"format_version": 2, "edge_margin": 0})["at_edge"] is False  # the guard was off


def six_trials(*losses, last="COMPLETE"):
    """Trials at growing rates (the best one, trial 6, lies 20 % of the range inside) and the values they end with."""
    rates = (0.002, 0.01, 0.05, 0.2, 0.8, 1.58)
    rows = zip(range(1, 7), rates, losses, strict=True)
    made = [trial(n, {20: loss}, parameters={"learning_rate": rate}) for n, rate, loss in rows]
    return [study(8, [*made, trial(7, {10: 0.001}, status=last, parameters={"learning_rate": 9.0})])]


def test_all_trials_of_a_study_count_as_they_do_for_its_run():
    """Of few trials an end is near from further off, and open if the others get better towards it (decision 0087)."""
    better, worse = (0.9, 0.8, 0.7, 0.6, 0.5, 0.05), (0.5, 0.6, 0.7, 0.8, 0.9, 0.05)
    incomplete = make_records(six_trials(*better, last="INCOMPLETE"))  # which says nothing
    assert (judged(incomplete)["at_edge"], judged(incomplete)["edge"]) == (True, "learning_rate high")
    assert judged(make_records(six_trials(*worse, last="INCOMPLETE")))["at_edge"] is False
    # one that diverged there is the worst of all, whatever it measured before
    assert judged(make_records(six_trials(0.6, 0.6, 0.6, 0.6, 0.5, 0.05, last="INFEASIBLE")))["at_edge"] is False


def test_trials_that_miss_a_goal_of_accuracy_are_ranked_by_their_highest_value():
    goal = Goal(METRIC, 0.9, maximize=True)
    assert judged(make_records(six_trials(0.1, 0.2, 0.3, 0.4, 0.5, 0.95, last="INCOMPLETE")), goal)["at_edge"] is True
    assert judged(make_records(six_trials(0.5, 0.4, 0.3, 0.2, 0.1, 0.95, last="INCOMPLETE")), goal)["at_edge"] is False


def test_nothing_lies_beyond_the_step_budget():
    steps = {"learning_rate_decay_steps": {"type": "DOUBLE", "scale": "LINEAR_SCALE", "min_value": 1, "max_value": 500}}
    trials = [trial(1, {10: 0.05}, parameters={"learning_rate_decay_steps": 500.0})]
    assert judged(make_records([study(8, trials, space=steps, train_steps=500)]))["at_edge"] is False
    assert judged(make_records([study(8, trials, space=steps, train_steps=1000)]))["at_edge"] is True


def test_a_study_without_a_winner_has_no_flag():
    row = judged(make_records([study(8, [trial(1, {10: 0.5})])]))
    assert row["at_edge"] is None
    assert row["searches"] == 1


def test_the_spacing_is_to_the_measurement_before_the_winning_one():
    trials = [trial(1, {0: 1.0, 10: 0.5, 25: 0.05, 30: 0.01}), trial(2, {24: 1.0, 26: 0.01})]
    records = make_records([study(8, trials), study(16, [trial(1, {7: 0.05})]), study(32, [trial(1, {7: 0.5})])])
    assert winner_spacing(records, steps_to_result(records, GOAL))["spacing"].to_list() == [15, 7, None]
