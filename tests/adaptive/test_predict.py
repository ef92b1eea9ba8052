"""`predict` on the noisy quadratic model: what it trains is stored, and a second call trains nothing."""

import json
import shutil
from pathlib import Path

import pytest

from batchscale.adaptive.branched import ORDERS
from batchscale.adaptive.predict import METHODS, predict, predict_from_records
from batchscale.adaptive.preparation import PredictSettings
from batchscale.errors import AnalysisError, SpecError, UnknownNameError
from batchscale.records.tree.read import read_tree
from batchscale.run.preflight import make_checked_plan
from batchscale.run.settings import RunSettings
from batchscale.spec.file import parse_experiment

TEXT = """
goal = "val/loss < 0.4"
batch_sizes = [4, 16, 64]
trials = 4
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
[budget]
steps = 400
[evaluation]
count = 40
spacing = "log"
"""
INLINE = PredictSettings(RunSettings("inline"), trials=4)


@pytest.fixture(scope="module")
def plan():
    return make_checked_plan(parse_experiment(TEXT, source="test"), None)


def files(folder: Path) -> dict[str, bytes]:
    """The records below a folder, without working files."""
    return {
        str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".batchscale" not in path.parts
    }


@pytest.fixture(scope="module")
def trained(plan, tmp_path_factory):
    """A folder with everything that all methods train, and their predictions."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, predict(plan, folder, (), INLINE)


def test_trained_once_stored_and_read_again(plan, trained):
    folder, first = trained
    names = [prediction.method for prediction in first]
    assert all(any(name.startswith(method) for name in names) for method in METHODS)
    for prediction in first:
        assert prediction.estimate.value is not None or prediction.reason
        assert (prediction.trial_steps > 0) == (prediction.examples > 0)
    stored = files(folder)
    assert predict(plan, folder, (), INLINE) == first
    assert files(folder) == stored


def test_branches_are_records_and_their_steps_are_the_cost(trained):
    folder, predictions = trained
    branches = read_tree(folder / "branched")
    assert set(branches.studies["batch_size"]) >= {4, 8}
    keys = [json.loads(path.read_bytes())["branch"] for path in (folder / "branched").rglob("metadata.json")]
    assert {key["order"] for key in keys} == set(range(1, ORDERS + 1))
    (branched,) = (prediction for prediction in predictions if prediction.method == "branched")
    trunk = max(key["state_step"] for key in keys)
    searched = sum(read_tree(folder / "search").trials["steps"])
    assert branched.trial_steps == sum(branches.trials["steps"]) + trunk + searched


def test_tuned_records_replace_the_search(plan, trained, tmp_path):
    folder, predictions = trained
    shutil.copytree(folder / "branched", tmp_path / "branched")
    settings = PredictSettings(RunSettings("inline"), trials=4, tuned=folder / "search")
    (prediction,) = predict(plan, tmp_path, ["branched"], settings)
    (searched,) = (each for each in predictions if each.method == "branched")
    assert not (tmp_path / "search").exists()
    assert prediction.estimate == searched.estimate
    assert prediction.trial_steps == searched.trial_steps - sum(read_tree(folder / "search").trials["steps"])


def test_tuned_records_of_another_workload_are_refused(trained, tmp_path):
    other = parse_experiment(TEXT.replace('"sgd"', '"momentum"'), source="test")
    settings = PredictSettings(RunSettings("inline"), tuned=trained[0] / "search")
    with pytest.raises(SpecError, match="must be of noisy_quadratic/quadratic/momentum"):
        predict(make_checked_plan(other, None), tmp_path, ["branched"], settings)


def test_a_goal_out_of_reach_is_a_reason_not_an_error(tmp_path):
    hard = parse_experiment(TEXT.replace("0.4", "1e-9"), source="test")
    (prediction,) = predict(make_checked_plan(hard, None), tmp_path, ["branched"], INLINE)
    assert prediction.estimate.value is None and "No trial reached" in prediction.reason


def test_unknown_methods_are_refused(plan, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'branched'"):
        predict(plan, tmp_path, ["branch"], INLINE)
    assert not list(tmp_path.iterdir())


def test_recorded_gradient_noise_predicts_without_training(plan, trained):
    folder, _ = trained
    name, goal = plan.experiment.workload.name, plan.experiment.goal
    with_noise, without = read_tree(folder / "noise"), read_tree(folder / "search")
    predictions = predict_from_records(with_noise, name, goal, ["noise_scale"])
    assert [item.method for item in predictions] == ["noise_scale_euclidean", "noise_scale_euclidean_at_goal"]
    assert all(item.trial_steps == 0 and (item.estimate.value or item.reason) for item in predictions)
    with pytest.raises(AnalysisError, match="Records must have gradient noise"):
        predict_from_records(without, name, goal, ["noise_scale"])
    with pytest.raises(SpecError, match="give the experiment file to train"):
        predict_from_records(with_noise, name, goal, ["branched"])
