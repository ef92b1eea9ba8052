"""Without JAX a built-in workload is refused in one sentence, and a user's own script is not."""

import subprocess
import sys

import pytest

from batchscale.errors import NO_ENGINE, RunError
from batchscale.run import preflight
from batchscale.spec.file import parse_experiment

EXPERIMENT = 'goal = "val/loss < 1"\nbatch_sizes = [4]\ntrials = 2\n[budget]\nsteps = 10\n'


def test_a_built_in_workload_names_the_extra(monkeypatch):
    monkeypatch.setattr(preflight, "find_spec", lambda _name: None)
    built_in = parse_experiment('workload = "noisy_quadratic/quadratic/sgd"\n' + EXPERIMENT)
    with pytest.raises(RunError, match=r"batchscale\[jax\]"):
        preflight.make_checked_plan(built_in, None)


def test_commands_that_need_the_engine_end_with_the_same_sentence(tmp_path):
    (tmp_path / "jax.py").write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')")
    (tmp_path / "e.toml").write_text('workload = "noisy_quadratic/quadratic/sgd"\n' + EXPERIMENT)
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from batchscale.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "validate", str(tmp_path / "e.toml"), "--time"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (2, f"Error: {NO_ENGINE}")
