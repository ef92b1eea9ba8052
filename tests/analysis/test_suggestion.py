import math

import numpy as np
import polars as pl
import pytest
from build_records import METRIC, NAME, make_records, study, trial

from batchscale.analysis.suggestion import suggest
from batchscale.errors import AnalysisError
from batchscale.spec.goal import Goal

GOAL = Goal(METRIC, 0.1)
RATE = {"learning_rate": {"type": "DOUBLE", "scale": "LOG_SCALE", "min_value": 0.0001, "max_value": 100.0}}
SPACE = RATE | {
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
        trial(3, {9000: 0.05}, parameters=parameters(9.0, 0.1, 0.1, 100)),
    ]
    large = [
        trial(1, {100: 0.05}, parameters=parameters(1.0, 0.99, 0.1, 200)),
        trial(2, {105: 0.05}, parameters=parameters(2.0, 0.99, 0.1, 200)),
    ]
    return make_records([study(4, small, space=SPACE), study(64, large, space=SPACE, own=own)])


def values_of(result):
    return {row["metaparameter"]: row for row in result.values.iter_rows(named=True)}


def bowl_records(best, *, sizes=(4, 16, 64, 256, 1024), trials=30, noise=0.1, seed=0, limit=math.inf, finishers=None):
    """Trials around a known best effective rate, steps 1000 (1 + 64/B) there; beyond ``limit`` times it they diverge.

    With ``finishers`` the others are stopped where the last of the finishers reaches the goal, as by a race.
    """
    rng = np.random.default_rng(seed)
    studies = []
    for size in sizes:
        momenta = 1 - 0.1 ** rng.uniform(0, 2, trials)
        offsets = rng.uniform(-3, 3, trials)
        memory = 1 - momenta + 1 / (1000 * (1 + 64 / size))
        rates = best(size) * np.exp(offsets) * memory
        steps = 1000 * (1 + 64 / size) * np.exp(np.sqrt(1 + offsets**2) - 1 + noise * rng.normal(size=trials))
        diverged = offsets > math.log(limit)
        stop = np.sort(steps[~diverged])[finishers - 1] if finishers else math.inf
        rows = []
        for i in range(trials):
            values = {"learning_rate": rates[i], "momentum": momenta[i]}
            if diverged[i]:
                rows.append(trial(i + 1, {5: 9.0}, status="INFEASIBLE", parameters=values))
            elif steps[i] > stop:
                rows.append(trial(i + 1, {round(stop): 0.2}, parameters=values))
            else:
                rows.append(trial(i + 1, {round(steps[i]) - 1: 0.2, round(steps[i]): 0.05}, parameters=values))
        space = {name: SPACE[name] for name in ("learning_rate", "momentum")}
        studies.append(study(size, rows, train_steps=200_000, space=space, early_stopping=bool(finishers)))
    return make_records(studies)


def effective_rate(result, steps=1000.0):
    rows = values_of(result)
    return rows["learning_rate"]["value"] / (1 - rows["momentum"]["value"] + 1 / steps)


# --- at and between measured sizes --------------------------------------------------------------------------------


def test_a_measured_size_has_the_winner_and_its_near_rivals_beside_the_suggested_value():
    result = suggest(records(), NAME, GOAL, 4)
    assert (result.source, result.batch_sizes, result.search_steps.value) == ("measured", (4,), 1000)
    rate = values_of(result)["learning_rate"]
    assert (rate["winner"], rate["low"], rate["high"], rate["trials"]) == (0.01, 0.01, 0.02, 2)
    assert 0.01 < rate["value"] < 0.02


def test_the_optimum_is_the_mean_of_the_trials_weighted_by_their_steps():
    trials = [(0.1, 100), (0.2, 110), (1.0, 100_000)]
    rows = [trial(i, {s: 0.05}, parameters={"learning_rate": r}) for i, (r, s) in enumerate(trials, start=1)]
    result = suggest(make_records([study(8, rows, space=RATE)]), NAME, GOAL, 8)
    weight = 1.1 ** (-1 / 0.25)  # of the second trial, against the winner
    expected = math.exp((math.log(0.1) + weight * math.log(0.2)) / (1 + weight))
    assert values_of(result)["learning_rate"]["value"] == pytest.approx(expected, rel=5e-3)  # three digits


def test_between_two_sizes_values_are_half_way_in_log_batch_size():
    alone = {4: 0.01, 64: 1.0}
    studies = [study(b, [trial(1, {100: 0.05}, parameters={"learning_rate": r})], space=RATE) for b, r in alone.items()]
    result = suggest(make_records(studies), NAME, GOAL, 16)
    assert (result.source, result.batch_sizes) == ("interpolated", (4, 64))
    assert values_of(result)["learning_rate"]["value"] == pytest.approx(0.1)
    # Two sizes show no scatter, so there is no range; and nothing was measured at this size to list.
    assert [values_of(result)["learning_rate"][k] for k in ("range_low", "low", "trials", "winner")] == [None] * 4


def test_the_smoothed_optimum_is_nearer_to_the_truth_than_the_winner():
    def best(size):
        return 0.01 * size**0.7

    smoothed, winners = [], []
    for seed in range(4):
        data = bowl_records(best, noise=0.3, seed=seed, finishers=5)
        for size in (4, 16, 64, 256, 1024):
            result = suggest(data, NAME, GOAL, size)
            rows = values_of(result)
            steps = 1000 * (1 + 64 / size)
            smoothed.append(abs(math.log(effective_rate(result, steps) / best(size))))
            winner = rows["learning_rate"]["winner"] / (1 - rows["momentum"]["winner"] + 1 / steps)
            winners.append(abs(math.log(winner / best(size))))
    assert np.mean(np.array(smoothed) < math.log(2)) >= 0.88
    assert np.mean(smoothed) < 0.7 * np.mean(winners)


@pytest.mark.parametrize(("batch_size", "smoothing"), [(8, 0.0), (32, 0.1)])
def test_a_discrete_metaparameter_takes_the_nearer_neighbours_value(batch_size, smoothing):
    assert values_of(suggest(records(), NAME, GOAL, batch_size))["label_smoothing"]["value"] == smoothing


def test_a_metaparameter_that_a_measured_size_lacks_is_not_suggested_there():
    both = {"learning_rate": 0.1, "momentum": 0.9}
    space = {name: SPACE[name] for name in both}
    plain = study(16, [trial(1, {50: 0.05}, parameters={"learning_rate": 0.1})], space=RATE)
    data = make_records([study(4, [trial(1, {100: 0.05}, parameters=both)], space=space), plain])
    assert list(values_of(suggest(data, NAME, GOAL, 16))) == ["learning_rate"]
    assert list(values_of(suggest(data, NAME, GOAL, 4))) == ["learning_rate", "momentum"]


def test_a_metaparameter_with_one_value_adds_no_uncertainty():
    names = {f"beta{i}": SPACE["momentum"] for i in (1, 2)}

    def data(extra):
        return make_records(
            [
                study(size, [
                    trial(i, {4000 // size + 9 * i - 1: 0.2, 4000 // size + 9 * i: 0.05}, parameters={
                        "learning_rate": 0.01 * i, "beta2": 0.99 + 0.001 * i} | extra)
                    for i in range(1, 6)
                ], space=RATE | names, train_steps=9000)
                for size in (4, 16, 64)
            ]
        )  # fmt: skip

    alone, both = (suggest(data(extra), NAME, GOAL, 16) for extra in ({}, {"beta1": 0.9}))
    assert values_of(both)["beta1"]["value"] == pytest.approx(0.9)
    assert both.steps.high / both.steps.low < 1.5 * alone.steps.high / alone.steps.low


def test_suggested_values_have_three_digits():
    for row in suggest(bowl_records(lambda size: 0.01 * size**0.5), NAME, GOAL, 32).values.iter_rows(named=True):
        value = row["value"] if row["metaparameter"] == "learning_rate" else 1 - row["value"]
        assert value == pytest.approx(float(f"{value:.3g}"), rel=1e-9)


@pytest.mark.parametrize(("batch_size", "noted"), [(4, False), (16, True), (64, True), (1024, True)])
def test_the_studies_behind_the_values_are_noted(batch_size, noted):
    lower = SPACE | {"momentum": SPACE["momentum"] | {"max_value": 0.99}}  # where the winner of 64 lies
    own = {"goal": str(GOAL), "searches": [{"space": lower, "first_trial_id": 1}] * 2}
    notes = suggest(records(own), NAME, GOAL, batch_size).notes
    assert notes == ({64: "at edge: momentum high; 2 searches"} if noted else {})


# --- outside the measured sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch_size", "end"), [(1, 4), (1024, 64)])
def test_outside_two_measured_sizes_the_nearest_end_is_given_as_such_and_no_steps(batch_size, end):
    result = suggest(records(), NAME, GOAL, batch_size)
    assert (result.source, result.batch_sizes) == ("nearest", (end,))
    assert (
        values_of(result)["learning_rate"]["value"]
        == values_of(suggest(records(), NAME, GOAL, end))["learning_rate"]["value"]
    )
    assert (result.steps.value, result.chance) == (None, None)


@pytest.mark.parametrize("batch_size", [1, 4096])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_outside_the_effective_rate_follows_its_trend_with_caution(power, batch_size):
    result = suggest(bowl_records(lambda size: 0.01 * size**power), NAME, GOAL, batch_size)
    assert (result.source, result.distance) == ("extrapolated", 4)
    factor = effective_rate(result, 1000 * (1 + 64 / batch_size)) / (0.01 * batch_size**power)
    assert 0.4 < factor < 1.25


def test_outside_a_rate_that_levels_off_is_not_extrapolated_along_a_straight_line():
    def best(size):
        return 0.01 * size / (1 + size / 64)

    for seed in range(3):
        result = suggest(bowl_records(best, seed=seed), NAME, GOAL, 4096)
        assert 0.5 < effective_rate(result) / best(4096) < 2


def test_outside_momentum_is_that_of_the_nearest_size_and_the_rate_goes_with_it():
    """Momentum that falls with the batch size at one effective rate: no line through either alone would do."""
    studies = []
    for size, momentum in ((4, 0.99), (16, 0.97), (64, 0.9), (256, 0.5)):
        rate = 2.0 * (1 - momentum)
        rows = [
            trial(i + 1, {0: 1.0, count: 0.05}, parameters={"learning_rate": rate * factor, "momentum": momentum})
            for i, (factor, count) in enumerate([(0.3, 200_000), (1.0, 100_000), (3.0, 200_000)])
        ]
        space = {name: SPACE[name] for name in ("learning_rate", "momentum")}
        studies.append(study(size, rows, train_steps=10**6, space=space))
    rows = values_of(suggest(make_records(studies), NAME, GOAL, 1024))
    assert rows["momentum"]["value"] == pytest.approx(
        values_of(suggest(make_records(studies), NAME, GOAL, 256))["momentum"]["value"]
    )
    assert 0.7 < rows["learning_rate"]["value"] / (1 - rows["momentum"]["value"]) < 3


def test_outside_the_rate_stays_below_what_diverged_at_the_nearest_size():
    for seed in range(3):
        data = bowl_records(lambda size: 0.01 * size, limit=1.8, seed=seed)
        free = bowl_records(lambda size: 0.01 * size, seed=seed)
        bounded, unbounded = (effective_rate(suggest(d, NAME, GOAL, 16_384)) for d in (data, free))
        assert unbounded > 2.5 * 10.24
        assert bounded < 2 * 10.24  # 10.24 is the best rate at 1,024; 18.4 and more diverged there


def test_decay_steps_outside_keep_their_share_of_the_training():
    studies = []
    for size in (4, 16, 64):
        steps = 64_000 // size
        space = RATE | {
            "learning_rate_decay_steps": {"type": "INTEGER", "scale": "", "min_value": 1, "max_value": 10**6}
        }
        rows = [
            trial(i, {steps - 1: 0.2, steps + i: 0.05}, parameters={
                "learning_rate": 0.1 * (1 + i / 10), "learning_rate_decay_steps": steps // 2})
            for i in range(1, 5)
        ]  # fmt: skip
        studies.append(study(size, rows, train_steps=10**6, space=space))
    value = values_of(suggest(make_records(studies), NAME, GOAL, 256))["learning_rate_decay_steps"]["value"]
    assert value == pytest.approx(125, rel=0.1)  # of about 250 steps; a straight line would be below zero
    assert value == round(value)


def test_values_stay_within_what_a_metaparameter_may_be():
    for batch_size in (1, 16_384):
        rows = values_of(suggest(bowl_records(lambda size: 0.01 * size), NAME, GOAL, batch_size))
        assert 0 <= rows["momentum"]["range_low"] <= rows["momentum"]["value"] <= rows["momentum"]["range_high"] < 1


# --- what one training needs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("finishers", [None, 5])
@pytest.mark.parametrize("batch_size", [64, 128])
def test_steps_are_those_of_one_training_and_not_of_the_best_of_a_search(batch_size, finishers):
    noise, truth = 0.3, 1000 * (1 + 64 / batch_size)
    rng = np.random.default_rng(1)
    held, middles, searches = [], [], []
    for seed in range(12):
        result = suggest(
            bowl_records(lambda size: 0.01 * size**0.5, noise=noise, seed=seed, finishers=finishers),
            NAME,
            GOAL,
            batch_size,
        )
        middles.append(result.steps.value / truth)
        searches.append(result.search_steps.value / truth)
        off = math.log(effective_rate(result, truth) / (0.01 * batch_size**0.5))
        fresh = truth * np.exp(math.sqrt(1 + off**2) - 1 + noise * rng.normal(size=50))
        held.append(np.mean((result.steps.low <= fresh) & (fresh <= result.steps.high)))
    assert np.mean(held) >= 0.8
    assert np.median(middles) == pytest.approx(1.0, abs=0.25)
    assert np.median(searches) < 0.85  # the best of thirty: what was promised before


def test_trainings_that_confirm_the_best_trials_move_the_steps_towards_theirs():
    data = bowl_records(lambda size: 0.01 * size**0.5, noise=0.3, finishers=5, sizes=(16, 64, 256))
    alone = suggest(data, NAME, GOAL, 64).steps
    rng = np.random.default_rng(3)
    best = values_of(suggest(data, NAME, GOAL, 64))
    rows, measured = [], []
    for i in range(20):
        steps = round(2000 * math.exp(0.3 * rng.normal()))
        head = data.trials.filter(batch_size=64).row(0, named=True)
        values = {name: best[name]["value"] for name in ("learning_rate", "momentum")}
        facts = dict.fromkeys(data.trials.schema["facts"].to_schema(), None) | {"confirms": 1}
        rows.append(head | values | {"trial_id": 100 + i, "status": "COMPLETE", "steps": steps, "facts": facts})
        measured.append({"batch_size": 64, "trial_id": 100 + i, "step": steps, METRIC: 0.05})
    trials = pl.concat([data.trials, pl.DataFrame(rows, schema=data.trials.schema)])
    frame = pl.concat([data.sources[NAME]().collect(), pl.DataFrame(measured)], how="diagonal_relaxed")
    more = type(data)(data.studies, trials, {NAME: frame.sort("batch_size", "trial_id", "step").lazy})
    steps = suggest(more, NAME, GOAL, 64).steps
    assert steps.value == pytest.approx(2000, rel=0.15)
    assert abs(math.log(steps.value / 2000)) < abs(math.log(alone.value / 2000))
    assert steps.low < 2000 * math.exp(-0.3) < 2000 * math.exp(0.3) < steps.high


def test_the_chance_is_that_of_the_trials_near_the_values():
    sure = suggest(bowl_records(lambda size: 0.01 * size**0.5), NAME, GOAL, 64)
    assert sure.chance > 0.93
    rows = []
    for i in range(40):  # every other training diverges, whatever its values
        values = {"learning_rate": 0.1 * 1.05**i}
        rows.append(
            trial(i + 1, {100: 0.05}, parameters=values)
            if i % 2
            else trial(i + 1, {5: 9.0}, status="INFEASIBLE", parameters=values)
        )
    even = suggest(make_records([study(8, rows, space=RATE)]), NAME, GOAL, 8)
    assert even.chance == pytest.approx(0.5, abs=0.1)


def test_a_chance_beyond_the_budget_is_small():
    data = bowl_records(lambda size: 0.01 * size**0.5)
    studies = data.studies.with_columns(train_steps=data.studies["train_steps"] * 0 + 700)
    short = type(data)(studies, data.trials, data.sources)
    result = suggest(short, NAME, GOAL, 32)  # about 3,000 steps are needed
    assert (result.budget, result.chance < 0.1) == (700, True)


def test_a_size_that_was_tried_and_failed_is_noted_and_lowers_the_chance():
    studies = [study(b, [trial(i, {100 + i: 0.05}, parameters={"learning_rate": 0.1 * 1.1**i}) for i in range(1, 13)],
                     space=RATE) for b in (8, 128)]  # fmt: skip
    failed = study(
        32, [trial(i, {1000: 0.5}, parameters={"learning_rate": 0.1 * 1.1**i}) for i in range(1, 13)], space=RATE
    )
    result = suggest(make_records([*studies, failed]), NAME, GOAL, 32)
    assert result.notes == {32: "none of its 12 trials reached the goal"}
    assert result.chance < 0.8 < suggest(make_records(studies), NAME, GOAL, 32).chance


# --- refusals -----------------------------------------------------------------------------------------------------


def test_a_goal_out_of_reach_is_refused():
    with pytest.raises(AnalysisError, match="reached"):
        suggest(records(), NAME, Goal(METRIC, 0.001), 16)


@pytest.mark.parametrize(("batch_size", "message"), [(1025, r"within 16 times .* Found 1,025"), (0, "at least 1")])
def test_a_size_that_nothing_can_be_said_about_is_refused(batch_size, message):
    with pytest.raises(AnalysisError, match=message):
        suggest(records(), NAME, GOAL, batch_size)


def test_a_batch_beyond_the_training_set_is_refused():
    data = records({"num_train_examples": 100})
    assert suggest(data, NAME, GOAL, 100).source == "nearest"
    with pytest.raises(AnalysisError, match=r"training set of toy, 100 examples\. Found batch size 101"):
        suggest(data, NAME, GOAL, 101)


def test_a_goal_that_takes_no_training_is_refused():
    rows = [trial(i, {0: 0.05, 10: 0.05}) for i in (1, 2)]
    with pytest.raises(AnalysisError, match="reaches at step 0"):
        suggest(make_records([study(8, rows)]), NAME, GOAL, 8)
