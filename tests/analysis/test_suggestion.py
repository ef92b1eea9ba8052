import pytest
from build_records import METRIC, NAME, make_records, study, trial

from batchscale.analysis import suggest
from batchscale.errors import AnalysisError
from batchscale.spec import Goal

GOAL = Goal(METRIC, 0.1)
SPACE = {
    "learning_rate": {"type": "DOUBLE", "scale": "LOG_SCALE", "min_value": 0.001, "max_value": 10.0},
    "momentum": {"type": "DOUBLE", "scale": "REVERSE_LOG_SCALE", "min_value": 0.0, "max_value": 0.999},
    "label_smoothing": {"type": "DISCRETE", "feasible_points": [0.0, 0.1]},
    "learning_rate_decay_steps": {"type": "INTEGER", "scale": "", "min_value": 100, "max_value": 1000},
}


def parameters(rate, momentum, smoothing, decay):
    names = ("learning_rate", "momentum", "label_smoothing", "learning_rate_decay_steps")
    return dict(zip(names, (rate, momentum, smoothing, decay), strict=True))


def records(own=None):
    small = [
        trial(1, {1000: 0.05}, parameters=parameters(0.01, 0.9, 0.0, 400)),
        trial(2, {1090: 0.05}, parameters=parameters(0.02, 0.8, 0.0, 500)),
        trial(3, {1200: 0.05}, parameters=parameters(9.0, 0.1, 0.1, 100)),
    ]
    large = [
        trial(1, {100: 0.05}, parameters=parameters(1.0, 0.99, 0.1, 200)),
        trial(2, {105: 0.05}, parameters=parameters(2.0, 0.99, 0.1, 200)),
    ]
    return make_records([study(4, small, space=SPACE), study(64, large, space=SPACE, own=own)])


def values(batch_size):
    result = suggest(records(), NAME, GOAL, batch_size)
    return result, {row["metaparameter"]: row for row in result.values.iter_rows(named=True)}


def test_a_measured_batch_size_gives_its_winner_with_the_range_of_near_winners():
    result, rows = values(4)
    assert (result.source, result.batch_sizes, result.steps) == ("measured", (4,), pytest.approx(1000))
    rate = rows["learning_rate"]
    assert (rate["value"], rate["low"], rate["high"], rate["trials"]) == (0.01, 0.01, 0.02, 2)


def test_between_neighbours_values_move_on_their_own_scale():
    result, rows = values(16)  # half way in log batch size
    assert (result.source, result.batch_sizes) == ("interpolated", (4, 64))
    assert result.steps == pytest.approx((1000 * 100) ** 0.5)
    assert rows["learning_rate"]["value"] == pytest.approx(0.1)  # LOG: geometric mean of 0.01 and 1
    assert 1 - rows["momentum"]["value"] == pytest.approx((0.1 * 0.01) ** 0.5)  # REVERSE_LOG
    assert rows["learning_rate_decay_steps"]["value"] == pytest.approx(300, abs=1)
    assert rows["learning_rate"]["low"] <= 0.1 <= rows["learning_rate"]["high"] == pytest.approx((0.02 * 2) ** 0.5)


@pytest.mark.parametrize(("batch_size", "smoothing"), [(8, 0.0), (32, 0.1)])
def test_a_discrete_metaparameter_takes_the_nearer_neighbours_value(batch_size, smoothing):
    assert values(batch_size)[1]["label_smoothing"]["value"] == smoothing


@pytest.mark.parametrize(("batch_size", "end"), [(1, 4), (1024, 64)])
def test_outside_the_measured_sizes_the_nearest_end_is_given_as_such(batch_size, end):
    result, rows = values(batch_size)
    assert (result.source, result.batch_sizes) == ("nearest", (end,))
    assert rows["learning_rate"]["value"] == (0.01 if end == 4 else 1.0)


@pytest.mark.parametrize(("batch_size", "noted"), [(4, False), (16, True), (64, True), (1024, True)])
def test_the_studies_behind_the_values_are_noted(batch_size, noted):
    verdict = {"at_edge": [{"parameter": "momentum", "side": "high"}]}
    own = {"goal": str(GOAL), "searches": [{"space": SPACE}] * 2, "verdict": verdict}
    notes = suggest(records(own), NAME, GOAL, batch_size).notes
    assert notes == ({64: "at edge: momentum high; 2 searches"} if noted else {})


def test_a_goal_out_of_reach_is_refused():
    with pytest.raises(AnalysisError, match="reached"):
        suggest(records(), NAME, Goal(METRIC, 0.001), 16)
