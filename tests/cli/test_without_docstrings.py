"""Every command's quick path works under ``python -OO``, which removes docstrings and assertions."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "examples" / "mnist_fc_records"
TREE = ROOT / "tests" / "formats" / "format_2" / "finished"
COMMANDS = [
    f"report {RECORDS} --workload fc_128_128_128 --out r.html",
    f"figure curve {RECORDS} --out f.svg",
    f"analyze {RECORDS}",
    f"suggest {TREE} --batch-size 8",
    f"compare {TREE} {ROOT / 'tests' / 'formats' / 'format_2' / 'trainer'}",
    f"plan {ROOT / 'examples' / 'ddsp_training_runs.csv'}",
    f"check {TREE}",
    f"import {TREE} --out table",
    f"status {TREE}",
    "workloads",
    "machines",
    "init e",
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_command_works(tmp_path, command):
    words = [sys.executable, "-OO", "-m", "batchscale", *command.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
