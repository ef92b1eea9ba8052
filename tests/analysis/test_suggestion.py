import numpy as np
import pytest
from build_records import METRIC, NAME, make_records, study, trial

from batchscale.analysis.suggestion import suggest
from batchscale.errors import AnalysisError
from batchscale.spec.goal import Goal

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
    assert (result.source, result.batch_sizes, result.steps.value) == ("measured", (4,), 1000)
    rate = rows["learning_rate"]
    assert (rate["value"], rate["low"], rate["high"], rate["trials"]) == (0.01, 0.01, 0.02, 2)


def test_between_neighbours_values_move_on_their_own_scale():
    result, rows = values(16)  # half way in log batch size
    assert (result.source, result.batch_sizes) == ("interpolated", (4, 64))
    assert result.steps.value == pytest.approx((1000 * 100) ** 0.5)
    assert rows["learning_rate"]["value"] == pytest.approx(0.1)  # LOG: geometric mean of 0.01 and 1
    assert 1 - rows["momentum"]["value"] == pytest.approx((0.1 * 0.01) ** 0.5)  # REVERSE_LOG
    assert rows["learning_rate_decay_steps"]["value"] == pytest.approx(300, abs=1)
    # Two sizes show no scatter, so there is no range; and nothing was measured at this size to list.
    assert [rows["learning_rate"][key] for key in ("range_low", "range_high", "low", "trials")] == [None] * 4


@pytest.mark.parametrize(("batch_size", "smoothing"), [(8, 0.0), (32, 0.1)])
def test_a_discrete_metaparameter_takes_the_nearer_neighbours_value(batch_size, smoothing):
    assert values(batch_size)[1]["label_smoothing"]["value"] == smoothing


@pytest.mark.parametrize(("batch_size", "end"), [(1, 4), (1024, 64)])
def test_outside_two_measured_sizes_the_nearest_end_is_given_as_such_and_no_steps(batch_size, end):
    result, rows = values(batch_size)
    assert (result.source, result.batch_sizes) == ("nearest", (end,))
    assert rows["learning_rate"]["value"] == (0.01 if end == 4 else 1.0)
    assert result.steps.value is None


@pytest.mark.parametrize(("batch_size", "noted"), [(4, False), (16, True), (64, True), (1024, True)])
def test_the_studies_behind_the_values_are_noted(batch_size, noted):
    lower = SPACE | {"momentum": SPACE["momentum"] | {"max_value": 0.99}}  # where the winner of 64 lies
    own = {"goal": str(GOAL), "searches": [{"space": lower, "first_trial_id": 1}] * 2}
    notes = suggest(records(own), NAME, GOAL, batch_size).notes
    assert notes == ({64: "at edge: momentum high; 2 searches"} if noted else {})


def test_a_goal_out_of_reach_is_refused():
    with pytest.raises(AnalysisError, match="reached"):
        suggest(records(), NAME, Goal(METRIC, 0.001), 16)


def _row(result, name):
    return result.values.filter(metaparameter=name).row(0, named=True)


def trend_records(power, noise=0.0, seed=0):
    """Six sizes whose best rate is 0.01 B^power, three trials each, steps of a hyperbola with B_crit 64."""
    rng = np.random.default_rng(seed)
    studies = []
    for size in (4, 8, 16, 32, 64, 128):
        best = 0.01 * size**power * np.exp(noise * rng.normal())
        steps = round(1e5 * (1 + 64 / size))
        trials = [
            trial(i, {0: 1.0, count - 1: 0.2, count: 0.05}, parameters=parameters(rate, 0.9, 0.0, 400))
            for i, (rate, count) in enumerate([(best / 3, 2 * steps), (best, steps), (best * 3, 2 * steps)], start=1)
        ]
        studies.append(study(size, trials, space=SPACE))
    return make_records(studies)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("batch_size", [1, 512, 2048])
def test_outside_the_measured_sizes_values_follow_the_trend_and_steps_the_law(power, batch_size):
    result = suggest(trend_records(power), NAME, GOAL, batch_size)
    assert result.source == "extrapolated"
    row = _row(result, "learning_rate")
    # The trials are symmetric about the optimum, so the line is exact.
    assert row["value"] == pytest.approx(0.01 * batch_size**power, rel=1e-6)
    assert (row["low"], row["trials"]) == (None, None)
    law = 1e5 * (1 + 64 / batch_size)
    assert result.steps.value == pytest.approx(law, rel=0.02)
    assert result.steps.low <= law <= result.steps.high


def test_the_range_outside_is_the_prediction_interval_of_the_line():
    records = trend_records(0.5, noise=0.3)
    sizes = np.log([4, 8, 16, 32, 64, 128])
    rates = [_row(suggest(records, NAME, GOAL, round(np.exp(x))), "learning_rate")["value"] for x in sizes]
    slope, level = np.polyfit(sizes, np.log(rates), 1)
    rest = np.log(rates) - slope * sizes - level
    scatter = np.sqrt((rest**2).sum() / 4)
    at = np.log(512)
    spread = ((sizes - sizes.mean()) ** 2).sum()
    reach = 2.1318468 * scatter * np.sqrt(1 + 1 / 6 + (at - sizes.mean()) ** 2 / spread)  # Student's t, 4, 95 %
    row = _row(suggest(records, NAME, GOAL, 512), "learning_rate")
    assert row["value"] == pytest.approx(np.exp(slope * at + level), rel=1e-6)
    assert (row["range_low"], row["range_high"]) == pytest.approx(
        (row["value"] * np.exp(-reach), row["value"] * np.exp(reach)), rel=1e-6
    )


def test_values_stay_within_what_a_metaparameter_may_be():
    rows = suggest(trend_records(0.5), NAME, GOAL, 10**9).values.rows(named=True)
    values = {row["metaparameter"]: row["value"] for row in rows}
    assert 0 <= values["momentum"] < 1
    assert values["learning_rate_decay_steps"] >= 1
