"""Two processes that torchrun itself starts. Its library has an environment of its own: see `make test-torch`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("BATCHSCALE_TRAINERS")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(FOLDER is None, reason="needs BATCHSCALE_TRAINERS, the programs of `make test-torch`"),
]
TRAIN = [
    *("train", "digits/linear/sgd", "-b", "50", "--steps", "20", "--evaluate-every", "10"),
    *("--set", "learning_rate=0.1"),
]


@pytest.mark.timeout(600)
def test_torchrun_starts_two_processes_that_train_one_trial(tmp_path):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    program = tmp_path / "batchscale"  # torchrun has another Python, without batchscale
    program.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' -m batchscale \"$@\"\n")
    program.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    launcher = [str(Path(FOLDER) / "torchrun"), "--standalone", "--nproc-per-node=2", "--no-python"]
    answer = subprocess.run(
        [*launcher, str(program), *TRAIN, "--json", "--out", str(tmp_path / "records")],
        env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert [json.loads(line)["step"] for line in answer.stdout.splitlines()] == [0, 10, 20]
    (trial,) = (tmp_path / "records").rglob("metadata.json")
    assert '"num_hosts": 2' in json.dumps(json.loads(trial.read_text()))
