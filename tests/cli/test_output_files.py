"""Every command writes its output file through one function: pipes and links stay as they are."""

import os
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.planning.step_times import append_step_times

ROOT = Path(__file__).parents[2]
RUNS = str(ROOT / "examples" / "ddsp_training_runs.csv")
MNIST = str(ROOT / "examples" / "mnist_fc_records")
TREE = ROOT / "tests" / "formats" / "format_2" / "finished"
STEP_TIME = {"workload": "d/m/o", "device": "cpu", "hosts": 1, "devices_per_host": 1, "batch_size": 8}


def run(*words):
    result = CliRunner().invoke(make_app(), [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output


COMMANDS = {
    "plan.csv": lambda out: run("plan", RUNS, "--csv", out),
    "machines.toml": lambda out: run("machines", "--out", out),
    "figure.csv": lambda out: run("figure", "curve", MNIST, "--json", "--csv", out),
    "figure.json": lambda out: run("figure", "curve", MNIST, "--out", out),
    "report.html": lambda out: run("report", MNIST, "--out", out),
    "calibrate.csv": lambda out: append_step_times(out, [{**STEP_TIME, "step_time_s": 0.1}]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_and_a_link_stay(tmp_path, name):
    target = tmp_path / "target"
    (tmp_path / name).symlink_to("target")
    COMMANDS[name](tmp_path / name)
    assert (tmp_path / name).is_symlink()
    written = target.read_bytes()
    assert written
    target.unlink()
    os.mkfifo(target)
    received = []
    reader = threading.Thread(target=lambda: received.append(target.read_bytes()), daemon=True)
    reader.start()
    COMMANDS[name](tmp_path / name)
    reader.join(30)
    assert stat.S_ISFIFO(target.stat().st_mode) and (tmp_path / name).is_symlink()
    assert len(received[0]) == pytest.approx(len(written), rel=0.01)


def test_importing_over_a_linked_table_replaces_the_table_not_the_link(tmp_path):
    (tmp_path / "table").symlink_to("place")
    run("import", TREE, "--out", tmp_path / "table")
    first = (tmp_path / "place").stat().st_ino
    run("import", TREE, "--out", tmp_path / "table", "--overwrite")
    assert (tmp_path / "table").is_symlink() and (tmp_path / "place").is_dir()
    assert (tmp_path / "place").stat().st_ino != first
