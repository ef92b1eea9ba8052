"""The training engine is loaded early for runs that will use it, and for no others."""

import json
import os

import psutil
import pytest

from batchscale.run.early_start import _loading, find_fork_server, load_engine_early

GOOD = """
goal = "val/classification_error < 0.1"
batch_sizes = [64]
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "sgd"
"""


def starts(text: str, tmp_path) -> bool:
    """True if a run of this file uses the fork server; nothing is left of it."""
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    with load_engine_early():
        processes = [server.pid for server in _loading]
        server = find_fork_server(file, tmp_path / "out")
        assert server is not None or not any(map(psutil.pid_exists, processes))
    assert not any(map(psutil.pid_exists, processes))
    return server is not None


def test_an_experiment_of_the_engine_is_started_early(tmp_path):
    assert starts(GOOD, tmp_path)


def test_nothing_is_forked_where_there_are_accelerators(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert not starts(GOOD, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "goal = ",
        "",
        GOOD + '[trainer]\ncommand = ["train.sh"]\n',
    ],
)
def test_other_files_are_not(tmp_path, text):
    assert not starts(text, tmp_path)


def test_files_that_cannot_be_read_are_not(tmp_path):
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for file in (pipe, tmp_path / "none.toml", tmp_path, tmp_path / "binary.toml"):
        with load_engine_early():
            assert find_fork_server(file, tmp_path / "out") is None


@pytest.mark.parametrize(
    ("status", "is_started"), [({"finished": True}, False), ({"finished": False}, True), ([], True)]
)
def test_a_finished_run_is_not(tmp_path, status, is_started):
    (tmp_path / "out/.batchscale").mkdir(parents=True)
    (tmp_path / "out/.batchscale/status.json").write_text(json.dumps(status))
    assert starts(GOOD, tmp_path) == is_started


def test_without_an_early_start_there_is_no_server(tmp_path):
    (tmp_path / "experiment.toml").write_text(GOOD)
    assert find_fork_server(tmp_path / "experiment.toml", tmp_path / "out") is None
