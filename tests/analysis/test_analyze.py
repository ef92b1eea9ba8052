import importlib.util
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from build_records import METRIC, NAME, curve_studies, make_records, study, trial

import batchscale.analysis as analysis
from batchscale.analysis.as_json import analysis_json, scaling_json
from batchscale.analysis.curve_analysis import ANALYSIS_SCHEMA, AnalysisOptions, analyze, analyze_points, stored_goal
from batchscale.analysis.intervals import Resampling
from batchscale.analysis.sentences import answer_sentences
from batchscale.analysis.suggestion import suggest
from batchscale.errors import AnalysisError, UnknownNameError
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

GOAL = Goal(METRIC, 0.1)
SIZES = [2**i for i in range(0, 16, 2)]
LAW = {size: 1000 * (1 + 64 / size) for size in SIZES}


def test_the_whole_answer_of_a_known_law():
    answer = analyze(make_records(curve_studies(LAW)), NAME, GOAL)
    assert answer.curve.schema.names()[: len(ANALYSIS_SCHEMA)] == list(ANALYSIS_SCHEMA)
    assert dict(answer.curve.select(list(ANALYSIS_SCHEMA)).schema) == {k: v() for k, v in ANALYSIS_SCHEMA.items()}
    assert answer.summary.fit.b_crit == pytest.approx(64, rel=0.01)
    assert answer.summary.critical.low < 64 < answer.summary.critical.high
    assert answer.summary.noise == "trials"
    inside = (answer.curve["steps_low"] <= answer.curve["steps"]) & (
        answer.curve["steps"] <= answer.curve["steps_high"]
    )
    assert inside.all()


def test_the_json_has_the_promised_keys_and_no_nan():
    data = analysis_json(analyze(make_records(curve_studies(LAW)), NAME, GOAL))
    again = json.loads(json.dumps(data, allow_nan=False))
    assert set(again) >= {"version", "workload", "goal", "curve", "scaling"}
    assert again["version"] == 2
    keys = "batch_size steps steps_low steps_high trial_id trials reached infeasible at_edge"
    assert set(again["curve"][0]) >= set(keys.split())
    keys = (
        "s_min b_crit b_crit_low b_crit_high rms_log perfect_scaling_end max_useful_batch_size max_useful_reached "
        "ending fall fall_low fall_high cheapest_batch_size proportional_end drift doubts sentences"
    )
    assert set(again["scaling"]) >= set(keys.split())
    assert again["curve"][0]["metaparameters"] == {"learning_rate": 0.01}


def test_the_same_seed_gives_the_same_json_and_draws_change_little():
    records = make_records(curve_studies(LAW))
    one, two = (analysis_json(analyze(records, NAME, GOAL)) for _ in range(2))
    assert one == two
    other = analysis_json(analyze(records, NAME, GOAL, AnalysisOptions(resampling=Resampling(seed=5))))
    assert other["scaling"] == one["scaling"]  # boundaries are not drawn
    for mine, theirs in zip(one["curve"], other["curve"], strict=True):
        assert theirs["steps_low"] == pytest.approx(mine["steps_low"], rel=0.05)


def test_a_race_with_one_finisher_has_no_point_intervals_and_b_crit_from_residuals():
    answer = analyze(make_records(curve_studies(LAW, factors=(1.0,))), NAME, GOAL)
    assert answer.curve["steps_low"].null_count() == len(SIZES)
    assert answer.curve["interval_note"].null_count() == 0
    assert answer.summary.noise == "residuals"
    assert answer.summary.critical.low <= 64.1


def test_a_study_that_did_not_reach_stays_in_the_table_and_is_named():
    studies = [*curve_studies(LAW), study(2**16, [trial(1, {10: 0.5})])]
    answer = analyze(make_records(studies), NAME, GOAL)
    assert answer.curve["steps"].to_list()[-1] is None
    assert "Doubt: no trial reached the goal at batch size 65,536." in answer_sentences(answer)


def test_trials_stopped_by_a_race_are_counted_apart():
    raced = study(1, [trial(1, {90: 0.05}), trial(2, {95: 0.5}), trial(3, {1000: 0.5})], early_stopping=True)
    answer = analyze(make_records([raced]), NAME, GOAL)
    assert answer.curve.select("trials", "reached", "stopped").row(0) == (3, 1, 1)


def test_too_few_points_are_told_not_raised():
    answer = analyze(make_records(curve_studies({8: 100})), NAME, GOAL)
    assert answer.summary is None
    assert "two batch sizes" in answer.refusal
    assert scaling_json(answer)["refusal"] == answer.refusal
    assert answer.refusal in answer_sentences(answer)


def test_a_goal_reached_before_the_first_step_is_no_point_of_a_curve():
    studies = [*curve_studies(LAW), study(2**16, [trial(1, {0: 0.05, 10: 0.01})])]
    answer = analyze(make_records(studies), NAME, GOAL)
    assert answer.summary.fit.points == len(SIZES)


def test_trial_less_records_are_refused():
    with pytest.raises(AnalysisError, match=r"no COMPLETE trial.*Found 1 INFEASIBLE"):
        analyze(make_records([study(8, [trial(1, {10: 0.5}, status="INFEASIBLE")])]), NAME, GOAL)


def test_a_run_that_has_just_begun_is_said_to_have_no_trial_yet():
    for ask in (
        lambda: analyze(make_records([study(8, [])]), NAME, GOAL),
        lambda: suggest(make_records([study(8, [])]), NAME, GOAL, 8),
    ):
        with pytest.raises(AnalysisError, match="no trial yet"):
            ask()


def test_regimes_is_a_module():
    import batchscale.analysis.regimes as module

    assert module.Regimes is analysis.Regimes
    for name in analysis.__all__:
        assert not isinstance(getattr(analysis, name), type(module)), name
        assert importlib.util.find_spec(f"batchscale.analysis.{name}") is None, name


def test_an_unknown_workload_is_named_with_the_nearest():
    with pytest.raises(UnknownNameError, match="toy/net/sgd"):
        analyze(make_records(curve_studies(LAW)), WorkloadName("toy", "net", "sgdd"), GOAL)


def test_the_goal_of_the_studies_is_found_if_they_agree():
    def records(*goals):
        return make_records([study(2**i, [trial(1, {5: 0.5})], own={"goal": g}) for i, g in enumerate(goals)])

    assert stored_goal(records("val/error < 0.1", "val/error < 0.1"), NAME) == GOAL
    assert stored_goal(records("val/error < 0.1", "val/error < 0.2"), NAME) is None
    assert stored_goal(records("nonsense"), NAME) is None
    assert stored_goal(make_records(curve_studies(LAW)), NAME) is None


def test_bare_points_have_b_crit_with_an_interval_by_residuals():
    steps = np.array(list(LAW.values())) * np.exp(0.05 * np.random.default_rng(0).normal(size=len(LAW)))
    answer = analyze_points(pl.DataFrame({"batch_size": SIZES, "steps": steps}))
    assert answer.summary.critical.low < 64 < answer.summary.critical.high


def test_analysis_loads_no_jax_and_no_charts():
    code = "import sys, batchscale.analysis; print([m for m in ('jax', 'altair', 'scipy.stats') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
