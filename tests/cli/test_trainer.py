"""``batchscale trainer``: the file for a script's own environment, and what a script without it is told."""

import os
import subprocess
import sys

from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import SpecError
from batchscale.trainers.failures import advise

runner = CliRunner()


def copy(folder):
    return runner.invoke(make_app(), ["trainer", "copy", str(folder)])


def test_a_script_without_batchscale_runs_with_the_copied_file(tmp_path):
    assert copy(tmp_path).exit_code == 0
    assert copy(tmp_path).exit_code == 0  # a copy of its own is replaced
    (tmp_path / "train.py").write_text("import trial\nprint(trial.start(learning_rate=0.5)['learning_rate'])\n")
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = subprocess.run(
        [sys.executable, "-S", "train.py"], cwd=tmp_path, env=alone, capture_output=True, text=True, check=True
    )
    assert script.stdout.splitlines()[-1] == "0.5"


def test_another_file_of_that_name_is_left_as_it_is(tmp_path):
    (tmp_path / "trial.py").write_text("mine = 1\n")
    assert isinstance(copy(tmp_path).exception, SpecError)
    assert (tmp_path / "trial.py").read_text() == "mine = 1\n"
    (tmp_path / "trial.py").unlink()
    (tmp_path / "trial.py").mkdir()
    assert isinstance(copy(tmp_path).exception, SpecError)


def test_a_script_that_misses_batchscale_is_told_what_to_do():
    assert "batchscale trainer copy" in advise(["ModuleNotFoundError: No module named 'batchscale'"])
    assert advise(["ModuleNotFoundError: No module named 'torch'"]) == ""
