"""Trials and runs with a mirror: they go on from it on a machine that has nothing else."""

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app

TRAIN = ["train", "noisy_quadratic/quadratic/sgd", "-b", "32", "--set", "learning_rate=0.05", "--evaluate-every", "20"]
TABLE = "noisy_quadratic/quadratic/sgd/32/1/measurements.csv"

EXPERIMENT = """
goal = "val/loss < 0.01"
batch_sizes = [16]
trials = 2
workload = "noisy_quadratic/quadratic/sgd"
budget.steps = 60
evaluation.every = 20
search.repeats = 0
"""


@pytest.fixture
def batchscale():
    def run(*words):
        result = CliRunner().invoke(make_app(), [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_a_trial_goes_on_from_its_mirror_alone(batchscale, tmp_path):
    mirror = f"file://{tmp_path}/remote"
    batchscale(*TRAIN, "--steps", 40, "--out", tmp_path / "first", "--mirror", mirror)
    said = batchscale(*TRAIN, "--steps", 80, "--out", tmp_path / "second", "--mirror", mirror, "--resume")
    assert "Restored" in said
    batchscale(*TRAIN, "--steps", 80, "--out", tmp_path / "whole")
    assert (tmp_path / "second" / TABLE).read_bytes() == (tmp_path / "whole" / TABLE).read_bytes()
    assert (tmp_path / "remote" / "tree" / TABLE).read_bytes() == (tmp_path / "whole" / TABLE).read_bytes()


def test_a_finished_run_is_there_again_from_its_mirror(batchscale, tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    run = ["run", tmp_path / "e.toml", "--runner", "inline", "--quiet", "--mirror", f"file://{tmp_path}/remote"]
    batchscale(*run, "--out", tmp_path / "first")
    batchscale(*run, "--out", tmp_path / "second")
    tables = sorted((tmp_path / "first").rglob("measurements.csv"))
    assert tables
    for table in tables:
        other = tmp_path / "second" / table.relative_to(tmp_path / "first")
        assert other.read_bytes() == table.read_bytes()
