"""The examples of trainers: their scripts do what they say, and one is measured to its curve."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import batchscale
from batchscale.planning.work import read_work

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCE = str(Path(batchscale.__file__).parents[1])
CALLBACKS = EXAMPLES / "trainer_callbacks"


def run_command(*words: str, python_folder: str = "", timeout_s: float = 100) -> str:
    """What a command prints; ``python`` in an experiment's command is the one in this folder."""
    folder = python_folder or str(Path(sys.executable).parent)
    environment = {**os.environ, "PYTHONPATH": SOURCE, "PATH": os.pathsep.join((folder, os.environ["PATH"]))}
    command = [sys.executable, "-m", "batchscale", *words]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def libraries() -> str:
    folder = os.environ.get("BATCHSCALE_TRAINERS")
    if folder is None:
        pytest.skip("the libraries of the examples are installed by `make test-torch`")
    return folder


def check(experiment: Path, **options) -> dict:
    return json.loads(run_command("trainer", "check", str(experiment), "--json", **options))


@pytest.mark.parametrize("name", ["logistic_shell", "jax_loop"])
def test_examples_without_further_libraries_resume_and_repeat(name):
    found = check(EXAMPLES / name / "experiment.toml")
    assert found["resumed_from"] == found["steps"][1]
    assert found["largest_difference"] == 0


def test_a_script_in_shell_is_measured_to_its_curve(tmp_path):
    run_command("run", str(EXAMPLES / "logistic_shell/experiment.toml"), "--out", str(tmp_path / "records"), "--quiet")
    found = json.loads(run_command("analyze", str(tmp_path / "records"), "--json"))
    assert '"batch_size": 16' in json.dumps(found)


def test_callbacks_are_short():
    for name in ("huggingface.py", "lightning_callback.py", "keras_callback.py"):
        assert len((CALLBACKS / name).read_text().splitlines()) <= 60


@pytest.mark.torch
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["huggingface", "lightning", "keras"])
def test_callbacks_pause_and_resume(name):
    found = check(CALLBACKS / f"{name}.toml", python_folder=libraries(), timeout_s=1200)
    assert found["pauses"] == "waits" and found["resumed_from"] == found["steps"][1]
    assert found["largest_difference"] < 1e-3  # the kernels of these libraries need not repeat their last bits


@pytest.mark.torch
@pytest.mark.timeout(1800)
def test_a_pytorch_script_is_measured_to_the_curve_of_our_own_engine(tmp_path):
    """Both curves within each other's intervals: the same workload, the same points, other random numbers."""
    text = (EXAMPLES / "torch_mnist/experiment.toml").read_text()
    (tmp_path / "ours.toml").write_text(text.partition("\n[trainer]\n")[0])
    experiments = {"torch": EXAMPLES / "torch_mnist/experiment.toml", "ours": tmp_path / "ours.toml"}
    curves = {}
    for name, experiment in experiments.items():
        out = str(tmp_path / name)
        run_command("run", str(experiment), "--out", out, "--quiet", python_folder=libraries(), timeout_s=1700)
        found = json.loads(run_command("analyze", out, "--json"))
        curves[name] = {point["batch_size"]: point for point in _points(found)}
    assert sorted(curves["torch"]) == sorted(curves["ours"]) == [4, 32, 256]
    for size, point in curves["torch"].items():
        other = curves["ours"][size]
        assert point["steps_low"] <= other["steps_high"] and other["steps_low"] <= point["steps_high"]


def _points(found) -> list[dict]:
    """The points of the curve, wherever they stand in what `analyze` prints."""
    if isinstance(found, dict):
        if {"batch_size", "steps", "steps_low"} <= set(found):
            return [found]
        return [point for part in found.values() for point in _points(part)]
    return [point for part in found for point in _points(part)] if isinstance(found, list) else []


@pytest.mark.torch
def test_a_pytorch_step_writes_the_work_of_its_products(tmp_path):
    """Two layers, forward and backward: 2 operations a weight for each, none for the gradient of the inputs."""
    path = tmp_path / "work.csv"
    script = EXAMPLES / "torch_mnist/count_work.py"
    subprocess.run([Path(libraries()) / "python", script, path], check=True, timeout=300)
    work = read_work(path)
    weights = 64 * 64, 64 * 10
    assert work.flops_per_example == 2 * (3 * sum(weights) - weights[0])
    assert work.parameters == sum(weights) + 64 + 10
