"""A whole experiment whose weights are averaged: what is recorded, raced, confirmed and trained alone."""

import csv
import json
from pathlib import Path

import pytest
from study_fakes import read_studies, read_values
from typer.testing import CliRunner

from batchscale.analysis.results import steps_to_result
from batchscale.cli.app import make_app
from batchscale.errors import RunError
from batchscale.records.check.tree import check_tree
from batchscale.records.tree.read import read_tree
from batchscale.run.loop import RunResult
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.file import parse_experiment

EXPERIMENT = """
goal = "val/loss < 0.2"
batch_sizes = [4, 16]
trials = 6
stop = "race"
finishers = 2
confirm = 2
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
[budget]
steps = 300
[evaluation]
every = 10
examples = { train = 0, val = 1, test = 0 }
[averaging]
half_life = [32, 128, 2048]
unit = "examples"
[search]
repeats = 0
[search.space]
learning_rate = { type = "DOUBLE", scale = "LOG_SCALE", min_value = 0.05, max_value = 1.9 }
"""


def make_plan(text: str = EXPERIMENT):
    return make_checked_plan(parse_experiment(text), None)


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("averaged")
    assert run_plan(make_plan(), root, RunSettings("inline")).result is RunResult.FINISHED
    return root


def rows_of(tree: Path, study: str, trial_id: int) -> list[dict[str, float]]:
    with (tree / study / str(trial_id) / "measurements.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_a_trial_counts_by_the_average_that_reaches_the_goal_first(tree):
    assert not check_tree(tree)
    half_lives = {4: [8.0, 32.0, 512.0], 16: [2.0, 8.0, 128.0]}  # in steps
    used = set()
    for (study, trial_id), trial in read_values(tree).items():
        rows = rows_of(tree, study, trial_id)
        columns = [f"val/loss_average_{number}" for number in (1, 2, 3)]
        first = {  # a second code: each average on its own
            half_life: min((row["step"] for row in rows if row[column] < 0.2), default=float("inf"))
            for column, half_life in zip(columns, half_lives[int(study.rsplit("/")[-1])], strict=True)
        }
        chosen = trial["parameters"]["averaging_half_life"]
        used.add(chosen)
        if trial["own"].get("confirms") is None:
            assert trial["own"].get("reached_at", float("inf")) == min(first.values())
            assert all(row["val/loss"] == min(row[column] for column in columns) for row in rows)
        if trial["own"].get("reached_at") is not None:
            assert first[chosen] == trial["own"]["reached_at"]
    assert len(used) > 2  # averages of several lengths win
    assert {size: study["batchscale"]["half_lives"] for size, study in read_studies(tree).items()} == half_lives


def test_a_confirmation_measures_the_average_of_the_trial_that_it_confirms(tree):
    values = read_values(tree)
    confirming = {key: trial for key, trial in values.items() if "confirms" in trial["own"]}
    assert len(confirming) == 4
    for (study, trial_id), trial in confirming.items():
        confirmed = values[study, trial["own"]["confirms"]]
        assert trial["parameters"] == confirmed["parameters"]
        half_lives = read_studies(tree)[int(study.rsplit("/")[-1])]["batchscale"]["half_lives"]
        number = half_lives.index(trial["parameters"]["averaging_half_life"]) + 1
        assert all(row["val/loss"] == row[f"val/loss_average_{number}"] for row in rows_of(tree, study, trial_id))


def test_the_half_life_is_a_metaparameter_of_the_result(tree):
    plan = make_plan()
    results = steps_to_result(read_tree(tree), plan.experiment.goal)
    assert results["averaging_half_life"].null_count() == 0
    # each average can be read as a goal of its own
    alone = steps_to_result(read_tree(tree), type(plan.experiment.goal).parse("val/loss_average_2 < 0.2"))
    pairs = zip(results["steps"], alone["steps"], strict=True)
    assert all(other is None or other >= steps for steps, other in pairs)


def test_a_folder_keeps_its_averages(tree):
    with pytest.raises(RunError, match=r"averaging.half_lives"):
        run_plan(make_plan(EXPERIMENT.replace("128, 2048", "128, 4096")), tree, RunSettings("inline"))


def test_one_trial_is_trained_with_one_average(tmp_path):
    command = "train noisy_quadratic/quadratic/sgd -b 4 --steps 20 --set learning_rate=0.5"
    words = [*command.split(), "--set", "averaging_half_life=8", "--json"]
    answer = CliRunner().invoke(make_app(), words)
    assert answer.exit_code == 0, answer.output
    plain = CliRunner().invoke(make_app(), [*command.split(), "--json"])
    assert plain.exit_code == 0, plain.output
    last, without = (json.loads(output.stdout.splitlines()[-2]) for output in (answer, plain))
    assert last != without
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    words = ["train", str(tmp_path / "experiment.toml"), *command.split()[2:], "--json", "--out", str(tmp_path / "out")]
    several = CliRunner().invoke(make_app(), words)
    assert several.exit_code == 0, several.output
    assert "val/loss_average_3" in several.output
    again = CliRunner().invoke(make_app(), words)
    assert again.exit_code == 0, again.output
    refused = CliRunner().invoke(make_app(), [*command.split(), "--set", "averaging_half_life=-1"])
    assert refused.exit_code != 0
