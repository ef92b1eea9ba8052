"""The list of workloads, as a person and as a program read it."""

import json

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.workloads.catalogue import paper_workloads


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    environment = {"BATCHSCALE_DATA": str(empty), "XDG_CACHE_HOME": str(empty)}
    results = [CliRunner().invoke(make_app(), ["workloads", *more], env=environment) for more in (["--json"], [])]
    assert [result.exit_code for result in results] == [0, 0]
    return json.loads(results[0].stdout), results[1].stdout


def test_json_has_every_workload_of_the_paper_with_its_parts(found):
    listed = {row["name"]: row for row in found[0]["workloads"]}
    assert {str(name) for name in paper_workloads()} <= set(listed)
    row = listed["mnist/fc_1024/sgd"]
    assert row == {
        "name": "mnist/fc_1024/sgd",
        "dataset": "mnist",
        "model": "fc_1024",
        "optimizer": "sgd",
        "task": "classification",
        "schedule": "constant",
        "num_parameters": 814_090,
        "num_train_examples": 55_000,
        "data_present": False,
    }
    assert listed["digits/fc_64/nesterov_momentum"]["data_present"] is True
    assert listed["noisy_quadratic/quadratic/sgd"]["num_train_examples"] is None
    assert "adam" in found[0]["optimizers"]


def test_the_table_lists_every_name_and_what_can_be_combined(found):
    lines = found[1].splitlines()
    assert lines[0].split() == ["workload", "task", "schedule", "parameters", "training", "set", "data"]
    assert any(line.startswith("imagenet/vgg_11/nesterov_momentum") and "132,863,336" in line for line in lines)
    assert any("optimizers: sgd, momentum, nesterov_momentum, adam" in line for line in lines)
    assert "\x1b" not in found[1]
