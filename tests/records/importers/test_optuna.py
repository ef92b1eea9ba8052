"""Optuna's SQLite storage and journal files, made by hand as version 5 writes them."""

import json
import math
import sqlite3

import pytest
from importer_runs import RUNS, STEPS, error, expected_curve, flat, imported_curve, run_import

from batchscale import read

SCHEMA = """
CREATE TABLE version_info (version_info_id INTEGER PRIMARY KEY, schema_version INTEGER, library_version VARCHAR);
CREATE TABLE studies (study_id INTEGER PRIMARY KEY, study_name VARCHAR);
CREATE TABLE study_directions (study_direction_id INTEGER PRIMARY KEY, direction VARCHAR, study_id INTEGER,
    objective INTEGER);
CREATE TABLE study_user_attributes (id INTEGER PRIMARY KEY, study_id INTEGER, "key" VARCHAR, value_json TEXT);
CREATE TABLE study_system_attributes (id INTEGER PRIMARY KEY, study_id INTEGER, "key" VARCHAR, value_json TEXT);
CREATE TABLE trials (trial_id INTEGER PRIMARY KEY, number INTEGER, study_id INTEGER, state VARCHAR);
CREATE TABLE trial_params (param_id INTEGER PRIMARY KEY, trial_id INTEGER, param_name VARCHAR, param_value FLOAT,
    distribution_json TEXT);
CREATE TABLE trial_user_attributes (id INTEGER PRIMARY KEY, trial_id INTEGER, "key" VARCHAR, value_json TEXT);
CREATE TABLE trial_intermediate_values (id INTEGER PRIMARY KEY, trial_id INTEGER, step INTEGER,
    intermediate_value FLOAT, intermediate_value_type VARCHAR);
INSERT INTO version_info VALUES (1, 12, '5.0.0');
"""
RATE = json.dumps({"name": "FloatDistribution", "attributes": {"step": None, "low": 0.001, "high": 10.0, "log": True}})
SIZE = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": [8, 16, 32]}})
CHOICE = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": ["relu", "tanh"]}})


def write_database(path, runs=RUNS, steps=STEPS, studies=("mnist",)):
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        for study_id, name in enumerate(studies, 1):
            database.execute("INSERT INTO studies VALUES (?, ?)", (study_id, name))
            database.execute("INSERT INTO study_directions VALUES (?, 'MINIMIZE', ?, 0)", (study_id, study_id))
            database.execute(
                "INSERT INTO study_system_attributes VALUES (?, ?, 'study:metric_names', ?)",
                (study_id, study_id, '["val_error"]'),
            )
        for number, (size, rate) in enumerate(runs):
            trial = number + 1
            state = "PRUNED" if number == 2 else "COMPLETE"
            database.execute(
                "INSERT INTO trials VALUES (?, ?, ?, ?)", (trial, number, 1 + number % len(studies), state)
            )
            values = (("batch_size", (8, 16, 32).index(size), SIZE), ("lr", rate, RATE), ("activation", 1, CHOICE))
            for name, value, distribution in values:
                database.execute(
                    "INSERT INTO trial_params VALUES (NULL, ?, ?, ?, ?)", (trial, name, value, distribution)
                )
            database.execute("INSERT INTO trial_user_attributes VALUES (NULL, ?, 'seed', ?)", (trial, str(number)))
            for step in steps:
                value = error(size, rate, step)
                kind = "NAN" if math.isnan(value) else "FINITE"
                row = (trial, step, None if math.isnan(value) else value, kind)
                database.execute("INSERT INTO trial_intermediate_values VALUES (NULL, ?, ?, ?, ?)", row)
        database.execute("INSERT INTO trials VALUES (900, 900, 1, 'WAITING')")
    database.close()


def write_journal(path):
    operations = [
        {"op_code": 0, "study_name": "old", "directions": [2]},
        {"op_code": 1, "study_id": 0},
        {"op_code": 0, "study_name": "mnist", "directions": [1]},
        {"op_code": 3, "study_id": 1, "system_attr": {"study:metric_names": ["val_error"]}},
    ]
    for trial, (size, rate) in enumerate(RUNS):
        operations.append({"op_code": 4, "study_id": 1, "datetime_start": "2026-01-01T00:00:00"})
        values = (("batch_size", (8, 16, 32).index(size), SIZE), ("lr", rate, RATE), ("activation", 0, CHOICE))
        operations += [
            {"op_code": 5, "trial_id": trial, "param_name": n, "param_value_internal": v, "distribution": d}
            for n, v, d in values
        ]
        operations.append({"op_code": 8, "trial_id": trial, "user_attr": {"seed": trial}})
        operations += [
            {"op_code": 7, "trial_id": trial, "step": step, "intermediate_value": error(size, rate, step)}
            for step in STEPS
        ]
        operations.append({"op_code": 6, "trial_id": trial, "state": 1, "values": [0.1]})
    path.write_text("".join(json.dumps(entry) + "\n" for entry in operations) + '{"op_code": 4, "study')


@pytest.mark.parametrize(("name", "write"), [("optuna.db", write_database), ("journal.log", write_journal)])
def test_the_curve_is_that_of_the_reported_values(tmp_path, name, write):
    write(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    result = run_import(tmp_path / name, "--out", tmp_path / "out", "--goal", "val_error < 0.5")
    assert result.exit_code == 0, result.exception
    assert imported_curve(tmp_path / "out") == expected_curve()
    assert (tmp_path / name).read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [name, "out"]
    )
    records = read(tmp_path / "out")
    assert records.trials["status"].value_counts().sort("status").rows() == [("COMPLETE", 6), ("INFEASIBLE", 1)]
    assert json.loads(records.studies["parameter_configs"][0]) == {
        "lr": {"max_value": 10.0, "min_value": 0.001, "scale": "LOG_SCALE", "type": "DOUBLE"}
    }
    seeds = records.trials["facts"].struct.field("seed")
    assert sorted(seeds.to_list()) == list(range(7))
    assert ("cut off" in flat(result)) == (name == "journal.log")


def test_a_pruned_trial_is_complete_and_says_so(tmp_path):
    write_database(tmp_path / "optuna.db")
    assert run_import(tmp_path / "optuna.db", "--out", tmp_path / "out", "--metric", "val_error").exit_code == 0
    trials = read(tmp_path / "out").trials
    reasons = trials.filter(trials["facts"].struct.field("stop_reason") == "pruned")
    assert reasons.select("batch_size", "lr", "status").rows() == [(16, 0.5, "COMPLETE")]


def test_steps_that_may_be_epochs_are_refused(tmp_path):
    write_database(tmp_path / "optuna.db", steps=range(10))
    arguments = (tmp_path / "optuna.db", "--out", tmp_path / "out", "--goal", "val_error < 0.9")
    assert "--unit is required" in str(run_import(*arguments).exception)
    assert run_import(*arguments, "--unit", "steps").exit_code == 0


def test_two_studies_with_the_same_batch_sizes_are_not_mixed(tmp_path):
    write_database(tmp_path / "optuna.db", studies=("a", "b"))
    arguments = (tmp_path / "optuna.db", "--out", tmp_path / "out", "--goal", "val_error < 0.5")
    assert "Import one of them with --group" in str(run_import(*arguments).exception)
    assert run_import(*arguments, "--workload", "{group}/m/o").exit_code == 0
    assert [name.dataset for name in read(tmp_path / "out").workloads] == ["a", "b"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE version_info SET schema_version = 13", "must have Optuna's schema 12"),
        ("DELETE FROM trial_intermediate_values", "never called trial.report"),
        ("INSERT INTO study_directions VALUES (9, 'MINIMIZE', 1, 1)", "must have one objective"),
        ("DROP TABLE trials; CREATE VIEW trials AS SELECT 1 AS trial_id", "must be that of a known tool"),
    ],
)
def test_other_databases_are_refused(tmp_path, statement, message):
    write_database(tmp_path / "optuna.db")
    with sqlite3.connect(tmp_path / "optuna.db") as database:
        database.executescript(statement)
    database.close()
    result = run_import(tmp_path / "optuna.db", "--out", tmp_path / "out", "--goal", "val_error < 0.5")
    assert message in str(result.exception), result.exception


def test_a_hostile_view_or_column_runs_no_code(tmp_path):
    """A generated column would run a function of the file's choice when it is read."""
    write_database(tmp_path / "optuna.db")
    with sqlite3.connect(tmp_path / "optuna.db") as database:
        database.executescript(
            "DROP TABLE trial_params;"
            "CREATE TABLE trial_params (param_id INTEGER, trial_id INTEGER, param_name VARCHAR, param_value FLOAT,"
            " distribution_json TEXT AS (hex(zeroblob(400000000))));"
            "INSERT INTO trial_params (param_id, trial_id, param_name, param_value) VALUES (1, 1, 'lr', 0.1);"
        )
    database.close()
    result = run_import(tmp_path / "optuna.db", "--out", tmp_path / "out", "--goal", "val_error < 0.5")
    assert "SQLite reports" in str(result.exception), result.exception


def test_pickles_are_never_read(tmp_path):
    (tmp_path / "study.pkl").write_bytes(b"\x80\x04cos\nsystem\n")
    result = run_import(tmp_path / "study.pkl", "--out", tmp_path / "out")
    assert "a pickle is never read" in str(result.exception)


def test_a_database_in_use_is_read_with_its_newest_changes(tmp_path):
    path = tmp_path / "optuna.db"
    write_database(path)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("UPDATE trial_params SET param_value = 9.0 WHERE trial_id = 1 AND param_name = 'lr'")
    database.commit()
    before = sorted(p.name for p in tmp_path.iterdir())
    assert run_import(path, "--out", tmp_path / "out", "--metric", "val_error").exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "out"])
    database.close()
    assert read(tmp_path / "out").trials.filter(batch_size=8)["lr"].to_list() == [9.0, 1.5]


def test_a_damaged_database_is_refused(tmp_path):
    write_database(tmp_path / "optuna.db")
    data = bytearray((tmp_path / "optuna.db").read_bytes())
    data[5000:9000] = b"\xff" * 4000
    (tmp_path / "optuna.db").write_bytes(data)
    result = run_import(tmp_path / "optuna.db", "--out", tmp_path / "out", "--metric", "val_error")
    assert type(result.exception).__name__ == "RecordsError", result.exception
    assert not (tmp_path / "out").exists()
