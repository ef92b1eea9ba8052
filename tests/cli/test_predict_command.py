"""`batchscale predict`: its table, its JSON, records as input, and bad input."""

import json

import pytest
from tests.adaptive.test_predict import TEXT
from typer.testing import CliRunner

from batchscale.cli.app import make_app
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
