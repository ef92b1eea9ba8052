"""Where the first rounds are placed: stored predictions, the gradient noise of first trials, or public curves."""

import json
from dataclasses import replace

import pytest
from adaptive_fakes import adaptive_plan, run_adaptive
from study_fakes import read_values

from batchscale.adaptive import rounds
from batchscale.adaptive.starting_point import noise_start, stored_start
from batchscale.adaptive.stored_predictions import FILE, read_predictions, write_predictions
from batchscale.analysis.intervals import Estimate
from batchscale.errors import RecordsError
from batchscale.prediction.prediction import Prediction
from batchscale.records.metadata.columns import stored_choices
from batchscale.records.tree.read import read_tree
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import run_plan
from batchscale.run.settings import RunSettings
from batchscale.spec.adaptive import AdaptivePlan, Aim, ChoiceKind
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.file import parse_experiment
from batchscale.spec.goal import Goal


def predicted(method, value, width=2.0, quantity="critical_batch_size"):
    ends = Estimate() if value is None else Estimate(value, value / width, value * width)
    return Prediction(method, quantity, ends, 100, 1000, "It holds.", "" if value else "Nothing was seen.", ("a line",))


def test_predictions_are_read_as_they_were_written_and_methods_replace_their_own(tmp_path):
    experiment = adaptive_plan().experiment
    first = [predicted("branched", 30.0), predicted("noise_scale_euclidean", None)]
    write_predictions(tmp_path, experiment, first)
    assert read_predictions(tmp_path, experiment) == first
    write_predictions(tmp_path, experiment, [predicted("branched", 40.0), predicted("easier_goals", 8.0)])
    values = {each.method: each.estimate.value for each in read_predictions(tmp_path, experiment)}
    assert values == {"branched": 40.0, "noise_scale_euclidean": None, "easier_goals": 8.0}
    assert read_predictions(tmp_path, experiment.with_gradient_noise())
    assert not read_predictions(tmp_path, replace(experiment, goal=Goal.parse("val/error < 0.1")))
    assert not read_predictions(tmp_path / "none", experiment)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 9, "predictions": []}', '{"version": 1, "predictions": [{}]}'])
def test_a_damaged_file_is_named_and_nothing_is_run(tmp_path, text):
    (tmp_path / "out-prediction").mkdir()
    (tmp_path / "out-prediction" / FILE).write_text(text)
    with pytest.raises(RecordsError, match=r"out-prediction/predictions\.json: the file must have the predictions"):
        run_adaptive(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_batch_size_in_the_file_must_be_a_positive_number(tmp_path):
    experiment = adaptive_plan().experiment
    write_predictions(tmp_path, experiment, [predicted("branched", 30.0)])
    data = json.loads((tmp_path / FILE).read_text())
    data["predictions"][0]["batch_size"] = -4
    (tmp_path / FILE).write_text(json.dumps(data))
    with pytest.raises(RecordsError, match="a batch size must be a positive number"):
        read_predictions(tmp_path, experiment)


def test_the_best_method_that_predicts_one_of_the_sizes_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan, root = adaptive_plan(), tmp_path / "out"
    folder = tmp_path / "out-prediction"
    assert stored_start(plan, root) is None
    write_predictions(folder, plan.experiment, [predicted("noisy_quadratic", 50.0), predicted("branched", 20.0)])
    assert stored_start(plan, root) == (20.0, "the critical batch size predicted by branched, stored in out-prediction")
    write_predictions(folder, plan.experiment, [predicted("branched", 5000.0), predicted("noise_scale_sign", 9.0, 20)])
    assert stored_start(plan, root)[0] == 50.0  # one lies beyond the sizes, the other says too little
    optimal = adaptive_plan(aim=Aim.OPTIMAL)
    assert stored_start(optimal, root) is None
    # `batchscale predict` has its folder in the current one, by the name of the experiment file.
    other = tmp_path / "experiment-prediction"
    write_predictions(other, plan.experiment, [predicted("easier_goals", 70.0)])
    assert stored_start(plan, tmp_path / "elsewhere")[0] == 70.0
    assert stored_start(plan, root)[0] == 50.0  # those beside the records come first


def test_a_run_starts_around_the_stored_prediction_and_says_so(tmp_path):
    write_predictions(tmp_path / "out-prediction", adaptive_plan().experiment, [predicted("easier_goals", 40.0)])
    run_adaptive(tmp_path / "out", adaptive_plan(max_trial_steps=1))
    first = stored_choices(read_tree(tmp_path / "out").studies)[0]
    assert first.sizes == (4, 16, 64, 256)
    assert "around 40, the critical batch size predicted by easier_goals, stored in out-prediction" in first.reason


NOISY = EvaluationPlan(every=5, gradient_noise=True)


def test_with_gradient_noise_one_size_comes_first_and_places_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "noise_start", lambda _plan, _records: (64.0, "a noise scale"))
    plan = adaptive_plan(factor=6.0, experiment={"evaluation": NOISY})
    run_adaptive(tmp_path / "whole", plan)
    choices = stored_choices(read_tree(tmp_path / "whole").studies)
    assert choices[0].sizes == (8,)
    assert "their gradient noise places the others" in choices[0].reason
    assert choices[1].kind is ChoiceKind.START
    assert choices[1].sizes == (32, 128, 512)
    assert "continue with batch sizes 32, 128 and 512, 8 trials each: around 64, a noise scale" in choices[1].reason
    run_adaptive(tmp_path / "parts", adaptive_plan(max_trial_steps=1, experiment={"evaluation": NOISY}))
    stopped = stored_choices(read_tree(tmp_path / "parts").studies)
    assert [choice.kind for choice in stopped] == [ChoiceKind.START, ChoiceKind.STOP]
    assert "the budget of 1 trial-steps is spent" in stopped[-1].reason
    run_adaptive(tmp_path / "parts", plan)
    assert {key: row for key, row in read_values(tmp_path / "parts").items() if key[0].endswith("batch_size_8")} == {
        key: row for key, row in read_values(tmp_path / "whole").items() if key[0].endswith("batch_size_8")
    }


def test_without_a_resolved_noise_scale_sizes_are_spread(tmp_path):
    """The fake engine measures no noise."""
    run_adaptive(tmp_path, adaptive_plan(factor=50.0, experiment={"evaluation": NOISY}))
    choices = stored_choices(read_tree(tmp_path).studies)
    assert choices[0].sizes == (8,)
    assert "spread over 1 to 512, because nothing predicts" in choices[1].reason
    assert len(choices[1].sizes) == 3
    assert choices[-1].kind is ChoiceKind.STOP


def test_the_noise_scale_of_real_trials_is_near_the_critical_batch_size(tmp_path):
    """The noisy quadratic with 100 coordinates of curvature 1/i: its noise scale near the goal is tens of examples."""
    text = (
        'goal = "val/loss < 0.1"\nworkload = "noisy_quadratic/quadratic/sgd"\nbatch_sizes = [4]\ntrials = 24\n'
        'finishers = 8\n[budget]\nsteps = 4000\n[evaluation]\ncount = 100\nspacing = "log"\ngradient_noise = true\n'
    )
    plan = make_checked_plan(parse_experiment(text), None)
    run_plan(plan, tmp_path, RunSettings("inline"))
    sizes = tuple(replace(plan.studies[0], batch_size=size) for size in (1, 512))
    adaptive = replace(plan.experiment, adaptive=AdaptivePlan())
    value, name = noise_start(replace(plan, experiment=adaptive, studies=sizes), read_tree(tmp_path))
    assert 5 < value < 200
    assert name == ("the critical batch size predicted by noise_scale_euclidean, measured in 8 trials at batch size 4")
