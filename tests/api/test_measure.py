"""``measure``: a function of this process trained in others, its folder continued, its mistakes in one sentence."""

import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import batchscale as bs
from batchscale.cli.app import make_app
from batchscale.errors import RunError, SpecError

SPACE = {"learning_rate": bs.log(0.2, 0.8)}
OPTIONS = {"batch_sizes": [2, 4, 8], "goal": "val/loss < 0.1", "space": SPACE, "trials": 2, "max_steps": 60}
ENDS = np.array([1.0, 2.0])


def decay(run):
    """Steps to the goal in closed form: a loss that falls with step × batch size, at any learning rate."""
    for step, _ in run.steps(lambda step: step):
        if run.due(step):
            run.report(step, {"val/loss": float(ENDS[0]) / (step * run.batch_size / 2)})


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    paths = [path for path in folder.rglob("*") if path.is_file() and ".batchscale" not in path.parts]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths if path.name != "process.json"}


def test_a_function_is_measured_and_the_same_call_returns_the_result(tmp_path, capsys):
    folder = tmp_path / "mine"
    curve = bs.measure(decay, **OPTIONS, folder=folder, evaluate_every=1, seed=3, workers=2)
    assert isinstance(curve, bs.Curve) and curve.folder == folder
    steps = dict(curve.to_frame().select("batch_size", "steps").rows())
    assert steps == {2: 11, 4: 6, 8: 3}  # the first step with 2 / (step × batch size) below a tenth
    assert set(curve.records.trials["status"]) == {"COMPLETE"}
    assert curve.records.trials["learning_rate"].is_between(0.2, 0.8).all()
    assert "batch size 8: goal reached after 3 steps" in capsys.readouterr().out
    before = files(folder)
    again = bs.measure(decay, **OPTIONS, folder=folder, evaluate_every=1, seed=3, progress=False)
    assert again.to_dict() == curve.to_dict() and files(folder).keys() == before.keys()
    assert {k: v[1] for k, v in files(folder).items()} == {k: v[1] for k, v in before.items()}
    assert bs.analyze(folder).to_dict() == curve.to_dict()  # the folder is read like records

    def other(run):
        decay(run)

    for change in ({"train": other}, {"goal": "val/loss < 0.2"}, {"seed": 4}):
        options = {"train": decay, **OPTIONS, "evaluate_every": 1, "seed": 3, "progress": False, **change}
        with pytest.raises(RunError):
            bs.measure(**options, folder=folder)
    assert {k: v[1] for k, v in files(folder).items()} == {k: v[1] for k, v in before.items()}


def noisy_decay(run):
    """The same with a luck that depends on the seed."""
    luck = 1 + np.random.default_rng(run.seed).random()
    for step, _ in run.steps(lambda step: step):
        if run.due(step):
            run.report(step, {"val/loss": luck / (step * run.batch_size / 2)})


def test_the_best_trial_is_confirmed_by_new_seeds(tmp_path):
    options = OPTIONS | {"trials": 6}
    curve = bs.measure(noisy_decay, **options, folder=tmp_path, evaluate_every=1, confirm=3, workers=2, progress=False)
    frame = curve.to_frame()
    assert frame["seeds"].to_list() == [3, 3, 3]
    assert (frame["steps"] >= frame["search_steps"]).all()


def test_files_of_others_are_left_alone(tmp_path):
    for name in ("train.py", "experiment.toml"):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(RunError, match="pass another folder"):
            bs.measure(decay, **OPTIONS, folder=folder)
        assert [path.name for path in folder.iterdir()] == [name] and (folder / name).read_text() == "mine"


@pytest.mark.slow
def test_an_interrupted_measurement_is_continued(tmp_path):
    def slow(run):
        for step, _ in run.steps(lambda step: step):
            time.sleep(0.02)
            if run.due(step):
                run.report(step, {"val/loss": 2 / (step * run.batch_size)})

    timer = threading.Timer(2.0, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    options = {**OPTIONS, "folder": tmp_path / "mine", "evaluate_every": 1, "progress": False}
    with pytest.raises(KeyboardInterrupt, match="The same call continues it"):
        bs.measure(slow, **options)
    assert dict(bs.measure(slow, **options).to_frame().select("batch_size", "steps").rows()) == {2: 11, 4: 6, 8: 3}


@pytest.mark.slow
def test_a_measurement_is_extended_by_more_trials_and_continued_by_the_command(tmp_path):
    def train(run):
        state = {"loss": 1.0}

        def save(folder):
            (folder / "loss.txt").write_text(repr(state["loss"]))

        def load(folder):
            state["loss"] = float((folder / "loss.txt").read_text())

        start = run.restore(load) or 0
        for step, _ in run.steps(lambda step: step, start=start, save=save):
            state["loss"] *= 1 - run["rate"] * run["held"] * run["layers"]
            if run.due(step):
                run.report(step, {"val/loss": state["loss"]})

    space = {"rate": bs.log(0.01, 0.1), "held": 1.0, "layers": bs.choice(1, 2)}
    steps = {8: 100, 16: 80, 32: 50}
    options = {"folder": tmp_path / "mine", "max_steps": steps, "resume": True, "evaluate_every": 2, "progress": False}
    goal = bs.Goal.parse("val/loss < 0.1")
    few, more = (bs.measure(train, steps, goal, space, trials=trials, **options) for trials in (3, 5))
    assert more.records.trials.height > few.records.trials.height
    kept = few.records.trials.select("batch_size", "trial_id", "rate", "layers").rows()
    assert set(kept) <= set(more.records.trials.select("batch_size", "trial_id", "rate", "layers").rows())
    words = ["run", str(tmp_path / "mine" / "experiment.toml"), "--out", str(tmp_path / "mine" / "records"), "--json"]
    answer = CliRunner().invoke(make_app(), words)
    assert answer.exit_code == 0, answer.output


def test_sizes_and_budgets_may_be_in_tokens():
    options = {**OPTIONS, "batch_sizes": ["32 tokens", "64 tokens", "128 tokens"], "max_steps": None}
    curve = bs.measure(decay, **options, tokens_per_example=16, max_tokens=352, evaluate_every=1, progress=False)
    assert curve.tokens_per_example == 16
    assert dict(curve.to_frame().select("batch_size", "steps").rows()) == {2: 11, 4: 6, 8: 3}
    # 352 tokens are 11, 6 and 3 steps, rounded up: each budget is just enough


def test_a_function_that_fails_shows_its_traceback():
    def broken(run):
        raise ValueError("no such data")

    with pytest.raises(RunError, match="ValueError: no such data") as error:
        bs.measure(broken, **OPTIONS, progress=False)
    assert "--runner" not in str(error.value) and "Correct train" in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"space": {}}, "space must be a dictionary of ranges"),
        ({"space": {"learning_rate": (0.1, 1.0)}}, "the range of 'learning_rate' must be bs.log"),
        ({"space": {"batch_size": bs.linear(1, 2)}}, "must not be named like a value that every trial has"),
        ({"goal": "small"}, "A goal"),
        ({"batch_sizes": []}, "batch_sizes must be whole numbers"),
        ({"batch_sizes": ["8"]}, "batch_sizes must be whole numbers"),
        ({"batch_sizes": ["8 tokens"]}, "tokens_per_example"),
        ({"batch_sizes": ["9 tokens"], "tokens_per_example": 2}, "9 tokens"),
        ({"max_steps": 2.5}, "max_steps must be a whole number"),
        ({"max_steps": 20, "max_tokens": 80}, "max_steps and max_tokens exclude each other"),
        ({"batch_sizes": [0]}, "batch_sizes"),
        ({"max_steps": {2: 10}}, "max_steps must have a number for every batch size. Found none for 4"),
        ({"trials": 0}, "key 'trials'"),
        ({"name": "../x"}, "name must be letters, digits"),
    ],
)
def test_arguments_are_checked_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(SpecError, match=message):
        bs.measure(decay, **{**OPTIONS, **change}, folder=tmp_path / "mine")
    assert not (tmp_path / "mine" / "records").exists() and not (tmp_path / "mine" / "experiment.toml").exists()


def test_ranges_are_checked_where_they_are_made():
    for make in (lambda: bs.log(0, 1), lambda: bs.log(2, 1), bs.choice, lambda: bs.reverse_log(0.5, 1.0)):
        with pytest.raises(SpecError):
            make()
    assert bs.log(np.float64(0.1), np.int64(1)).config["max_value"] == 1
