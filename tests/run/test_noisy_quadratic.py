"""A real experiment against theory: the noisy quadratic model, through worker processes, at every batch size."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from study_fakes import read_values

from batchscale.run.loop import RunResult
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.file import parse_experiment

EXPERIMENT = """
goal = "val/loss < 5.9"
batch_sizes = [1, 8, 64, 512]
trials = 10
stop = "{stop}"

[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
dataset_options = {{ dimension = 1000, curvature_power = 0.25 }}

[budget]
steps = 600
[evaluation]
count = 100
spacing = "log"
examples = {{ train = 0, val = 1, test = 0 }}
[search]
repeats = 0
[search.space]
learning_rate = {{ type = "DOUBLE", scale = "LOG_SCALE", min_value = 1e-2, max_value = 1.9 }}
"""
DIMENSION = 1000  # many coordinates: the loss of one trial is near its mean, and the band below is narrow
GOAL = 5.9  # a twentieth of the loss at the start
SIGMAS = 4.0  # forty trials and their neighbouring evaluations: one in a thousand such runs would leave this band


def make_plan(stop: str):
    return make_checked_plan(parse_experiment(EXPERIMENT.format(stop=stop)), None)


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("quadratic")
    outcome = run_plan(make_plan("race"), root, RunSettings(workers=2))
    assert outcome.result is RunResult.FINISHED
    return root


def loss_and_deviation(rate: float, batch_size: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the loss at every step, and a bound of its standard deviation: θ² varies most when θ is all noise."""
    h = np.arange(1, DIMENSION + 1) ** -0.25
    s = np.ones(DIMENSION)
    means, deviations = [], []
    for _ in range(steps + 1):
        means.append(0.5 * np.sum(h * s))
        deviations.append(np.sqrt(0.5 * np.sum((h * s) ** 2)))
        s = (1 - rate * h) ** 2 * s + rate**2 * h / batch_size
    return np.array(means), np.array(deviations)


def trials_of(root: Path, batch_size: int) -> list[dict]:
    return [t for (study, _), t in read_values(root).items() if study.endswith(f"/{batch_size}")]


@pytest.mark.parametrize("batch_size", [1, 8, 64, 512])
def test_steps_to_result_agree_with_the_closed_form_over_the_same_trials(tree, batch_size):
    plan = make_plan("race")
    grid = np.array(plan.studies[0].evaluation_steps)
    earliest, latest, measured = [], [], []
    for trial in trials_of(tree, batch_size):
        if trial["status"] != "COMPLETE":
            continue
        means, deviations = loss_and_deviation(trial["parameters"]["learning_rate"], batch_size, 600)
        means, deviations = means[grid], deviations[grid]
        earliest += list(grid[means - SIGMAS * deviations < GOAL][:1])
        latest += list(grid[means + SIGMAS * deviations < GOAL][:1])
        rows = csv.DictReader(str(trial["rows"]).splitlines())
        measured += [int(row["step"]) for row in rows if float(row["val/loss"]) < GOAL][:1]
    assert min(earliest) <= min(measured) <= min(latest)
    assert min(latest) <= 2 * min(earliest)  # the band must be able to refuse something


def test_every_study_has_its_trials_and_says_how_they_ended(tree):
    for batch_size in (1, 8, 64, 512):
        trials = trials_of(tree, batch_size)
        assert sum(t["status"] == "COMPLETE" for t in trials) == 10
        assert {t["own"]["stop_reason"] for t in trials} <= {"goal", "raced", "diverged"}
        study = json.loads((tree / f"noisy_quadratic/quadratic/sgd/{batch_size}/study.json").read_text())
        assert study["early_stopping"] is True
        assert study["batchscale"]["finding"]["goal_reached"] is True


def test_the_tree_passes_its_own_check(tree):
    from typer.testing import CliRunner

    from batchscale.cli.app import make_app

    result = CliRunner().invoke(make_app(), ["check", str(tree)])
    assert result.exit_code == 0, result.output


def test_one_worker_in_this_process_gives_the_same_records(tree, tmp_path):
    run_plan(make_plan("race"), tmp_path, RunSettings(runner="inline"))
    assert read_values(tmp_path) == read_values(tree)
