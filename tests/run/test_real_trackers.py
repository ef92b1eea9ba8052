"""Runs mirrored to the real MLflow, TensorBoard, trackio and W&B, read back by our importers; `make test-importers`."""

import math
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from batchscale import read
from batchscale.cli.app import make_app

pytestmark = [pytest.mark.importers, pytest.mark.timeout(600)]
SOURCES = {
    "mlflow": ("mlflow:sqlite:///{0}/mlflow.db", "mlflow.db"),
    "tensorboard": ("tensorboard:{0}/logs", "logs"),
    "trackio": ("trackio:mine", "trackio/mine.db"),
    "wandb": ("wandb:mine", "wandb"),
}


def mirror(kind, folder, trials):
    """Runs in a process of its own, as a user does; everything it prints is returned."""
    packages = next((Path(os.environ["BATCHSCALE_IMPORTERS"]).parent / "lib").glob("python*/site-packages"))
    script = Path(__file__).with_name("track_real.py")
    tracker = SOURCES[kind][0].format(folder)
    environment = {**os.environ, "TRACKIO_DIR": f"{folder}/trackio", "WANDB_DIR": str(folder), "HOME": str(folder)}
    command = [sys.executable, script, packages, folder / "records", tracker, str(trials)]
    answer = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=500)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


def rows_of(tree):
    records = read(tree)
    frame = records.measurements_of(records.workloads[0]).collect().sort("batch_size", "trial_id", "step")
    keys = records.trials.select("batch_size", "trial_id", "learning_rate")
    rows = frame.join(keys, on=["batch_size", "trial_id"]).select("batch_size", "learning_rate", "step", "val/error")
    return {row[:3]: row[3] for row in rows.drop_nulls().rows()}


@pytest.mark.parametrize("kind", SOURCES)
def test_what_a_tracker_got_is_what_was_recorded(kind, tmp_path):
    assert mirror(kind, tmp_path, 4) == ""  # trackers print nothing into the results of a run
    again = mirror(kind, tmp_path, 4)  # a continued run sends nothing twice
    assert again == ""
    words = ["import", tmp_path / SOURCES[kind][1], "--out", tmp_path / "imported", "--metric", "val/error"]
    result = CliRunner().invoke(make_app("import"), list(map(str, [*words, "--unit", "steps"])))
    assert result.exit_code == 0, result.exception
    ours, theirs = rows_of(tmp_path / "records"), rows_of(tmp_path / "imported")
    assert len(ours) >= 20
    for key, value in ours.items():
        if math.isfinite(value):
            assert theirs[key] == pytest.approx(value, rel=1e-6), key  # TensorBoard stores 32 bits
    trials = [read(tmp_path / name).trials for name in ("records", "imported")]
    counts = [frame.group_by("batch_size").agg(pl.len()).sort("batch_size").rows() for frame in trials]
    assert counts[0] == counts[1]
