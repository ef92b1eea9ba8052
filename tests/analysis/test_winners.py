import pytest
from build_records import METRIC, SPACE, make_records, study, trial

from batchscale.analysis import steps_to_result, winner_edges, winner_spacing
from batchscale.spec import Goal

GOAL = Goal(METRIC, 0.1)


HIGHER = {"learning_rate": SPACE["learning_rate"] | {"min_value": 0.1, "max_value": 1000.0}}


def flags(learning_rate, **options):
    trials = [trial(5, {10: 0.05}, parameters={"learning_rate": learning_rate}), trial(6, {10: 0.5})]
    records = make_records([study(8, trials, **options)])
    return winner_edges(records, steps_to_result(records, GOAL)).row(0, named=True)


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
    """What the run found for its own goal is not asked: the winner at hand is judged, as the run judged its own."""
    stored = [{"parameter": "learning_rate", "side": "low"}]
    own = {"format_version": 2, "finding": {"goal_reached": True, "at_edge": stored}} | ({"goal": goal} if goal else {})
    assert flags(0.1, own=own)["at_edge"] is False
    assert flags(9.0, own=own)["edge"] == "learning_rate high"


def test_the_margin_is_that_of_the_run():
    # 9 lies 1.1 % of the range below its top
    assert flags(9.0, own={"format_version": 2, "edge_margin": 0.01})["at_edge"] is False
    assert flags(9.0, own={"format_version": 2, "edge_margin": 0.02})["at_edge"] is True


def test_a_study_without_a_winner_has_no_flag():
    records = make_records([study(8, [trial(1, {10: 0.5})])])
    row = winner_edges(records, steps_to_result(records, GOAL)).row(0, named=True)
    assert row["at_edge"] is None
    assert row["searches"] == 1


def test_the_spacing_is_to_the_measurement_before_the_winning_one():
    trials = [trial(1, {0: 1.0, 10: 0.5, 25: 0.05, 30: 0.01}), trial(2, {24: 1.0, 26: 0.01})]
    records = make_records([study(8, trials), study(16, [trial(1, {7: 0.05})]), study(32, [trial(1, {7: 0.5})])])
    assert winner_spacing(records, steps_to_result(records, GOAL))["spacing"].to_list() == [15, 7, None]
