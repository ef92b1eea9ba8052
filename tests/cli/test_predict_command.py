"""`batchscale predict`: its table, its JSON, records as input, and bad input."""

import json

import pytest
from tests.adaptive.test_predict import TEXT
from typer.testing import CliRunner

from batchscale.analysis.intervals import Estimate
from batchscale.analysis.units import SizeUnit
from batchscale.cli.app import make_app
from batchscale.cli.prediction_output import _size_text
from batchscale.errors import BatchscaleError

KEYS = {
    "method", "quantity", "resolved", "batch_size", "batch_size_low", "batch_size_high", "trial_steps", "examples",
    "assumption", "reason", "details",
}  # fmt: skip


def run(*words):
    return CliRunner().invoke(make_app("predict"), ["predict", *map(str, words)])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "quadratic.toml"
    path.write_text(TEXT)
    return path


def test_methods_without_training_write_nothing(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(file, "--methods", "atlas,published_laws", "--json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert data["version"] == 1 and data["workload"] == "noisy_quadratic/quadratic/sgd"
    assert data["study_trial_steps"] == 3 * 4 * 400
    assert [set(item) for item in data["predictions"]] == [KEYS] * 2
    assert all(item["trial_steps"] == 0 for item in data["predictions"])
    text = run(file, "--methods", "published_laws").stdout
    assert "not resolved" in text and "language models" in text
    assert [path.name for path in tmp_path.iterdir()] == ["quadratic.toml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "noise"], "A method must be one of"),
        (["--methods", ""], "A method must be one of"),
        (["--goal", "val/loss < 1"], "--goal is for records"),
        (["--methods", "branched", "--tuned", "nowhere"], "Records are a directory"),
    ],
)
def test_bad_options_are_refused(file, words, message, tmp_path):
    result = run(file, *words, "--out", tmp_path / "out")
    assert isinstance(result.exception, BatchscaleError) and message in str(result.exception)


def test_a_missing_file_is_refused(tmp_path):
    assert isinstance(run(tmp_path / "none.toml").exception, BatchscaleError)


@pytest.mark.parametrize(
    "words", [["--out", "x"], ["--tuned", "x"], ["--batch-size", "4"], ["--trials", "3"], ["--workers", "1"]]
)
def test_options_that_train_are_refused_for_records(words, tmp_path):
    result = run(tmp_path, *words)
    assert isinstance(result.exception, BatchscaleError)
    assert f"{words[0]} is for an experiment file; records train nothing" in str(result.exception)


@pytest.mark.parametrize("value", ['["euclidean", "sgn"]', "[]", '"sign"', "3", '[["sign"]]'])
def test_a_kind_of_noise_that_does_not_exist_is_refused_with_those_that_do(file, value):
    file.write_text(file.read_text() + f"gradient_noise = {value}\n")
    message = str(run(file, "--methods", "atlas").exception)
    assert "key 'evaluation.gradient_noise' must be true, false, or a list of kinds of euclidean, precond" in message


def test_a_kind_of_noise_that_does_not_fit_the_optimizer_is_refused_before_anything_is_trained(file, tmp_path):
    file.write_text(file.read_text() + 'gradient_noise = ["preconditioned"]\n')
    message = str(run(file, "--methods", "branched", "--out", tmp_path / "out").exception)
    assert "needs an optimizer with second moments" in message and "Found sgd" in message
    assert not (tmp_path / "out").exists()


def test_a_value_without_an_interval_says_so():
    unit = SizeUnit(None)
    assert _size_text(Estimate(480.0), unit) == "480 (no interval)"
    assert _size_text(Estimate(480.0, None, 900.0), unit) == "480 (at most 900)"
