"""MLflow's SQLite store and mlruns folders, and trackio's database, made by hand as the libraries write them."""

import json
import math
import sqlite3

import pytest
from importer_runs import RUNS, STEPS, error, expected_curve, flat, imported_curve, run_import

from batchscale import read

MLFLOW = """
CREATE TABLE experiments (experiment_id INTEGER, name VARCHAR, lifecycle_stage VARCHAR);
CREATE TABLE runs (run_uuid VARCHAR, name VARCHAR, status VARCHAR, start_time BIGINT, lifecycle_stage VARCHAR,
    experiment_id INTEGER);
CREATE TABLE params ("key" VARCHAR, value VARCHAR, run_uuid VARCHAR);
CREATE TABLE metrics ("key" VARCHAR, value FLOAT, timestamp BIGINT, run_uuid VARCHAR, step BIGINT, is_nan BOOLEAN);
CREATE TABLE latest_metrics ("key" VARCHAR);
CREATE TABLE tags ("key" VARCHAR);
INSERT INTO experiments VALUES (1, 'mnist', 'active'), (2, 'gone', 'deleted');
"""


def write_mlflow(path):
    database = sqlite3.connect(path)
    database.executescript(MLFLOW)
    database.execute("INSERT INTO runs VALUES ('gone', 'gone', 'FINISHED', 0, 'deleted', 1)")
    for i, (size, rate) in enumerate(RUNS):
        run = f"{i:032x}"
        status = "KILLED" if i == 0 else "FINISHED"
        database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, 'active', 1)", (run, f"r{i}", status, i))
        for key, value in (("batch_size", size), ("lr", rate), ("optimizer", "sgd"), ("seed", i)):
            database.execute("INSERT INTO params VALUES (?, ?, ?)", (key, str(value), run))
        # a run that was restarted has some steps twice: the later value counts
        database.execute("INSERT INTO metrics VALUES ('val_error', 0.0, 1, ?, 100, 0)", (run,))
        for step in STEPS:
            value = error(size, rate, step)
            nan = math.isnan(value)
            database.execute(
                "INSERT INTO metrics VALUES ('val_error', ?, ?, ?, ?, ?)", (0 if nan else value, step, run, step, nan)
            )
        database.execute("INSERT INTO metrics VALUES ('train_loss', 1.7976931348623157e308, 5, ?, 100, 0)", (run,))
    database.commit()
    database.close()


def write_mlruns(folder):
    experiment = folder / "42"
    experiment.mkdir(parents=True)
    (experiment / "meta.yaml").write_text("experiment_id: '42'\nlifecycle_stage: active\nname: mnist\n")
    for i, (size, rate) in enumerate(RUNS):
        run = experiment / f"{i:032x}"
        (run / "params").mkdir(parents=True)
        (run / "metrics" / "val").mkdir(parents=True)
        status = 5 if i == 0 else 3
        (run / "meta.yaml").write_text(
            f"run_id: {i:032x}\nrun_name: r{i}\nstatus: {status}\nlifecycle_stage: active\ntags: []\n"
        )
        for key, value in (("batch_size", size), ("lr", rate), ("optimizer", "sgd"), ("seed", i)):
            (run / "params" / key).write_text(str(value))
        lines = [f"{step} {error(size, rate, step)} {step}\n" for step in STEPS]
        (run / "metrics" / "val" / "error").write_text("".join(["1 0.0 100\n", *lines, "99"]))
        (run / "params" / "link").symlink_to("/etc/hostname")


def write_trackio(path):
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, step INTEGER,"
        " metrics TEXT); CREATE TABLE configs (id INTEGER PRIMARY KEY, run_id TEXT, run_name TEXT, config TEXT);"
    )
    for i, (size, rate) in enumerate(RUNS):
        config = {"batch_size": size, "lr": rate, "optimizer": "sgd", "seed": i, "_Username": None}
        text = json.dumps(config).encode()
        database.execute("INSERT INTO configs VALUES (NULL, ?, ?, ?)", (f"id{i}", f"r{i}", text))
        for step in STEPS:
            value = error(size, rate, step)
            row = json.dumps({"val": {"error": "NaN" if math.isnan(value) else value}, "note": "text"}).encode()
            database.execute("INSERT INTO metrics VALUES (NULL, ?, 't', ?, ?, ?)", (f"id{i}", f"r{i}", step, row))
    database.execute("INSERT INTO metrics VALUES (NULL, 'id0', 't', 'r0', 1, 'no json')")
    database.commit()
    database.close()


@pytest.mark.parametrize(
    ("kind", "name", "write"),
    [("mlflow", "mlflow.db", write_mlflow), ("mlflow", "mlruns", write_mlruns), ("trackio", "mnist.db", write_trackio)],
)
def test_the_curve_is_that_of_the_logged_values(tmp_path, kind, name, write):
    write(tmp_path / name)
    result = run_import(tmp_path / name, "--out", tmp_path / "out", "--goal", "val/error < 0.5")
    assert result.exit_code == 0, result.exception
    assert f"source {kind}, 7 runs" in flat(result)
    assert imported_curve(tmp_path / "out") == expected_curve()
    trials = read(tmp_path / "out").trials.sort("batch_size", "trial_id")
    assert trials["lr"].to_list() == [rate for _, rate in RUNS]
    assert trials["facts"].struct.field("seed").to_list() == list(range(7))
    statuses = ["COMPLETE" if kind == "trackio" else "INCOMPLETE", *["COMPLETE"] * 4, "INFEASIBLE", "COMPLETE"]
    assert trials["status"].to_list() == statuses
    assert [str(name) for name in read(tmp_path / "out").workloads] == [f"{(tmp_path / name).stem}/model/sgd"]


def test_mlflow_names_its_largest_number_infinity(tmp_path):
    write_mlflow(tmp_path / "mlflow.db")
    assert run_import(tmp_path, "--out", tmp_path / "out", "--metric", "val_error").exit_code == 0
    records = read(tmp_path / "out")
    losses = records.measurements_of(records.workloads[0]).collect()["train/loss"].drop_nulls()
    assert losses.to_list() == [math.inf] * 7


def test_a_damaged_metric_is_refused_with_its_line(tmp_path):
    write_mlruns(tmp_path / "mlruns")
    file = next((tmp_path / "mlruns").rglob("error"))
    file.write_text("1 0.5 100\nnonsense\n2 0.4 200\n")
    result = run_import(tmp_path / "mlruns", "--out", tmp_path / "out", "--metric", "val/error")
    assert "line 2: must be a time stamp, a value and a step" in str(result.exception)
