"""Files that the real libraries wrote give the numbers that the libraries give; run by `make test-importers`."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from importer_runs import RUNS, expected_curve, imported_curve, run_import

from batchscale import read
from batchscale.records import check_records

pytestmark = [pytest.mark.importers, pytest.mark.timeout(600)]
KINDS = [
    "optuna_sqlite",
    "optuna_journal",
    "mlflow_sqlite",
    "mlflow_folder",
    "tensorboardx",
    "tensorboard",
    "trackio",
    "wandb",
    "wandb_export",
]


@pytest.mark.parametrize("kind", KINDS)
def test_an_imported_study_has_the_numbers_of_its_library(kind, tmp_path):
    python = Path(os.environ["BATCHSCALE_IMPORTERS"]) / "python"
    folder = tmp_path / "files"
    folder.mkdir()
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "HOME": str(tmp_path)}
    script = [str(python), str(Path(__file__).with_name("real_runs.py")), kind, str(folder)]
    answer = subprocess.run(script, env=environment, cwd=folder, capture_output=True, text=True, timeout=500)
    assert answer.returncode == 0, answer.stderr[-3000:]
    written = json.loads(answer.stdout.splitlines()[-1])
    metric = "objective" if kind.startswith("optuna") else "val/error"
    result = run_import(written["path"], "--out", tmp_path / "out", "--goal", f"{metric} < 0.5")
    assert result.exit_code == 0, result.exception
    goal = f"val/{metric.rpartition('/')[2]} < 0.5"
    curve = imported_curve(tmp_path / "out", goal)
    assert curve == {int(size): steps for size, steps in written["curve"].items()} == expected_curve()
    assert check_records(tmp_path / "out") == []
    trials = read(tmp_path / "out").trials.sort("batch_size", "trial_id")
    assert trials.select("batch_size", "lr").rows() == RUNS
    assert sorted(trials["facts"].struct.field("seed").to_list()) == list(range(len(RUNS)))
    assert trials["status"].to_list() == ["COMPLETE"] * 5 + ["INFEASIBLE", "COMPLETE"]
