from dataclasses import replace

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import SpecError
from batchscale.spec import DEFAULT_BUDGET, EvaluationPlan, parse_experiment, read_experiment

runner = CliRunner()


def test_the_written_file_is_an_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = runner.invoke(make_app(), ["init", "mine"])
    assert answer.exit_code == 0
    assert read_experiment(tmp_path / "mine.toml").workload.name.dataset == "digits"
    assert "batchscale validate mine.toml" in answer.output


def test_every_commented_key_of_the_file_is_valid_and_shows_its_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner.invoke(make_app(), ["init"])
    text = (tmp_path / "experiment.toml").read_text()
    keys = ("# seed", "# examples =", "# algorithm", "# paired", "# edge_margin", "# repeats")
    shown = "\n".join(line[2:] if line.startswith(keys) else line for line in text.splitlines())
    assert shown != text.rstrip("\n")
    given = parse_experiment(shown)
    default = parse_experiment(text)
    assert replace(given, text=default.text) == default
    assert given.evaluation.examples == EvaluationPlan().examples
    assert DEFAULT_BUDGET.unit == given.budget.unit


@pytest.mark.parametrize("name", ["experiment", "experiment.toml"])
def test_nothing_is_overwritten(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.toml").write_text("mine")
    assert isinstance(runner.invoke(make_app(), ["init", name]).exception, SpecError)
    assert (tmp_path / "experiment.toml").read_text() == "mine"


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = runner.invoke(make_app(), ["init", "nowhere/x"])
    assert isinstance(answer.exception, SpecError)
    assert "cannot write" in str(answer.exception)
