"""Branches and averages of a user's script: what it reports is what the same trial alone would, however it ran."""

import csv
import json
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from study_fakes import read_values
from trainer_fakes import SOURCE
from trial_side import reports, start

from batchscale.records.check.tree import check_tree
from batchscale.run.loop import RunResult
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.file import read_experiment
from batchscale.spec.plan import make_plan
from batchscale.trainers.command import describe_trainer

EXAMPLE = Path(__file__).parents[2] / "examples" / "horizon"
PAIRS = [[2, 4], [4, 8], [6, 12]]
TRUTH = 1 / np.arange(1, 21)

KILL = """
        if step == 57 and run.annealing(step) < 1 and not Path(f"killed-{run.batch_size}-{run.trial_id}").exists():
            Path(f"killed-{run.batch_size}-{run.trial_id}").touch()
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """The example finds batchscale and this Python; a trial takes over SIGTERM, which this process gets back."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    yield
    signal.signal(signal.SIGTERM, before)


# --- one process ----------------------------------------------------------------------------------------------------


class Walk:
    """A number that follows its batches, with its state in a file."""

    def __init__(self) -> None:
        self.value = 1.0
        self.trained = 0

    def step(self, rate: float, batch: float) -> None:
        self.value -= rate * (self.value - batch)
        self.trained += 1

    def save(self, folder: Path) -> None:
        (folder / "value").write_text(repr(self.value))

    def load(self, folder: Path) -> None:
        self.value = float((folder / "value").read_text())


def alone(source, begin: int, end: int) -> float:
    """The trial trained alone, with a rate of 0.1 that falls to 0 between these steps."""
    walk = Walk()
    for step in range(end):
        walk.step(0.1 * (1 - max(0, step - begin) / (end - begin)), source[step % len(source)])
    return walk.value


def train(run, walk: Walk, source, begin: int = 0) -> None:
    for step, batch in run.steps(source, start=begin, save=walk.save, load=walk.load):
        walk.step(0.1 * run.annealing(step), batch)
        if run.due(step):
            run.report(step, {"val/error": walk.value})


def begin(tmp_path, monkeypatch, measured=0, **changes):
    plan = {"pairs": PAIRS, "measured": measured, "shape": "linear", "end_factor": 0.0}
    steps = {"max_steps": 12, "until_step": 12, "measure_at": [4, 8, 12]}
    return start(tmp_path, monkeypatch, branches=plan, **(steps | changes))


BATCHES = [0.3, -0.2, 0.9, 0.1, 0.5]


@pytest.mark.parametrize("style", ["list", "iterator", "function of the step"])
def test_a_branch_is_the_trial_trained_alone_with_its_schedule(tmp_path, monkeypatch, style):
    walk, run = Walk(), begin(tmp_path, monkeypatch)
    source = {"list": BATCHES, "iterator": iter(BATCHES * 3), "function of the step": lambda s: BATCHES[(s - 1) % 5]}
    train(run, walk, source[style])
    measured = {line["step"]: line["metrics"]["val/error"] for line in reports(tmp_path) if "step" in line}
    assert measured == {end: alone(BATCHES, first, end) for first, end in PAIRS}
    assert walk.trained == 6 + 2 + 4 + 6  # the trunk once, and every branch


def test_an_interrupted_branch_begins_again_at_its_trunk(tmp_path, monkeypatch):
    expected = {end: alone(BATCHES, first, end) for first, end in PAIRS}
    for stop in range(1, 18):  # after so many steps, on the trunk or on a branch
        folder = tmp_path / str(stop)
        folder.mkdir()
        walk, run = Walk(), begin(folder, monkeypatch)
        for count, (step, batch) in enumerate(run.steps(BATCHES, save=walk.save, load=walk.load), 1):
            walk.step(0.1 * run.annealing(step), batch)
            if run.due(step):
                run.report(step, {"val/error": walk.value})
            if count == stop:
                break  # killed: nothing is saved any more
        last = max((line["step"] for line in reports(folder) if "step" in line), default=0) if stop > 2 else 0
        again, resumed = Walk(), begin(folder, monkeypatch, measured=last)
        train(resumed, again, BATCHES, resumed.restore(again.load) or 0)
        lines = [line for line in reports(folder) if "step" in line]
        assert [line["step"] for line in lines] == [4, 8, 12], "no branch is measured twice"
        assert {line["step"]: line["metrics"]["val/error"] for line in lines} == expected


def test_a_script_with_branches_must_be_able_to_go_back(tmp_path, monkeypatch):
    run = begin(tmp_path, monkeypatch)
    with pytest.raises(ValueError, match=r"must save and load: run.steps"):
        next(iter(run.steps(BATCHES, save=lambda _: None)))


@pytest.mark.parametrize(("shape", "halfway"), [("linear", 0.55), ("cosine", 0.55), ("sqrt", 1 - 0.9 * 0.5**0.5)])
def test_rates_fall_by_their_shape(tmp_path, monkeypatch, shape, halfway):
    plan = {"pairs": [[4, 8]], "measured": 0, "shape": shape, "end_factor": 0.1}
    run = start(tmp_path, monkeypatch, branches=plan, max_steps=8, until_step=8, measure_at=[8])
    rates = {step: run.annealing(step) for step, _ in run.steps([0], save=lambda _: None, load=lambda _: None)}
    assert [rates[step] for step in range(1, 6)] == [1.0] * 5
    assert rates[7] == pytest.approx(halfway)


# --- the example, measured -----------------------------------------------------------------------------------------


def make_folder(tmp_path: Path, extra: str = "") -> Path:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    script = folder / "train.py"
    script.write_text(script.read_text().replace("        if run.due(step):\n", extra + "        if run.due(step):\n"))
    return folder


def run(folder: Path, name: str, out: Path, runner: str = "inline") -> dict:
    experiment = read_experiment(folder / f"{name}.toml")
    plan = make_plan(experiment, describe_trainer(experiment))
    assert run_plan(plan, out, RunSettings(runner, workers=2)).result is RunResult.FINISHED
    assert not check_tree(out)
    return read_values(out)


def loss_alone(batch_size: int, seed: int, rate: float, first: int, end: int) -> float:
    """A second code: the example's training without batchscale, with a rate that falls between two steps."""
    weights = np.zeros(20)
    for step in range(1, end + 1):
        rng = np.random.default_rng((seed, step))
        inputs = rng.normal(size=(batch_size, 20))
        answers = inputs @ TRUTH + rng.normal(size=batch_size)
        factor = 1 - max(0, step - 1 - first) / (end - first)
        weights = weights - rate * factor * inputs.T @ (inputs @ weights - answers) / batch_size
    return float(np.sum((weights - TRUTH) ** 2))


def test_the_example_of_branches_is_raced_and_survives_kills_within_them(tmp_path):
    whole = run(make_folder(tmp_path), "branches", tmp_path / "whole")
    for (study, trial_id), trial in list(whole.items())[::5]:
        branches = json.loads((tmp_path / "whole" / study / "study.json").read_text())["batchscale"]["branches"]
        with (tmp_path / "whole" / study / str(trial_id) / "measurements.csv").open() as file:
            measured = {int(row["step"]): float(row["val/loss"]) for row in csv.DictReader(file)}
        size, rate = int(study.rsplit("/")[-1]), trial["parameters"]["learning_rate"]
        for first, end in branches[: len(measured)]:
            # stored with the digits of a float32
            assert measured[end] == pytest.approx(loss_alone(size, trial["own"]["seed"], rate, first, end), rel=1e-6)
    shutil.rmtree(tmp_path / "example")
    folder = make_folder(tmp_path, KILL)
    assert run(folder, "branches", tmp_path / "killed", "local") == whole
    assert list(folder.glob("killed-*")), "scripts were killed in the middle of a branch"


def test_the_example_of_averages_is_measured_with_the_best_of_them(tmp_path):
    values = run(make_folder(tmp_path), "averaged", tmp_path / "records")
    half_lives = {4: [16.0, 64.0, 256.0], 16: [4.0, 16.0, 64.0], 64: [1.0, 4.0, 16.0]}
    for (study, trial_id), trial in values.items():
        with (tmp_path / "records" / study / str(trial_id) / "measurements.csv").open() as file:
            rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        assert all(row["val/loss"] == min(row[f"val/loss_average_{n}"] for n in (1, 2, 3)) for row in rows)
        assert trial["parameters"]["averaging_half_life"] in half_lives[int(study.rsplit("/")[-1])]
