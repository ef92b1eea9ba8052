"""Trials and runs with a mirror: they go on from it on a machine that has nothing else."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError, StorageError
from batchscale.records.mirror import open_mirror

TRAIN = ["train", "noisy_quadratic/quadratic/sgd", "-b", "32", "--set", "learning_rate=0.05", "--evaluate-every", "20"]
TABLE = "noisy_quadratic/quadratic/sgd/32/1/measurements.csv"

EXPERIMENT = """
goal = "val/loss < 0.01"
batch_sizes = [16]
trials = 2
workload = "noisy_quadratic/quadratic/sgd"
budget.steps = 60
evaluation.every = 20
search.repeats = 0
"""


@pytest.fixture
def batchscale():
    def run(*words):
        result = CliRunner().invoke(make_app(), [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_a_trial_goes_on_from_its_mirror_alone(batchscale, tmp_path):
    mirror = f"file://{tmp_path}/remote"
    batchscale(*TRAIN, "--steps", 40, "--out", tmp_path / "first", "--mirror", mirror)
    said = batchscale(*TRAIN, "--steps", 80, "--out", tmp_path / "second", "--mirror", mirror)
    assert "Restored" in said
    batchscale(*TRAIN, "--steps", 80, "--out", tmp_path / "whole")
    assert (tmp_path / "second" / TABLE).read_bytes() == (tmp_path / "whole" / TABLE).read_bytes()
    assert (tmp_path / "remote" / "tree" / TABLE).read_bytes() == (tmp_path / "whole" / TABLE).read_bytes()


def test_a_mirror_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    for command in ([*TRAIN, "--steps", 40], ["run", tmp_path / "e.toml", "--runner", "inline", "--quiet"]):
        words = [*command, "--out", tmp_path / "out", "--mirror", "file:///proc/none/mirror"]
        result = CliRunner().invoke(make_app(), [str(word) for word in words])
        assert isinstance(result.exception, StorageError)
        assert "file:///proc/none/mirror: cannot write" in str(result.exception)
        assert not (tmp_path / "out").exists()


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuse(*words):
    result = CliRunner().invoke(make_app(), [str(word) for word in words])
    assert isinstance(result.exception, BatchscaleError), result.output
    return str(result.exception)


@pytest.fixture
def stopped(batchscale, tmp_path):
    """The mirror of a trial that was killed: it has a journal and a state, and no record."""
    mirror = tmp_path / "remote"
    batchscale(*TRAIN, "--steps", 40, "--out", tmp_path / "first", "--mirror", f"file://{mirror}")
    shutil.rmtree(tmp_path / "first" / TABLE.rpartition("/")[0])
    shutil.rmtree(mirror)
    working = tmp_path / "first" / ".batchscale" / "studies" / TABLE.rpartition("/1/")[0]
    (working / "journal-1").write_bytes(b"")
    open_mirror(tmp_path / "first", f"file://{mirror}").sync()
    assert "journal-1" in (mirror / "manifest.json").read_text()
    return mirror


def test_a_refused_attempt_removes_nothing_here_or_there(stopped, tmp_path):
    url = f"file://{stopped}"
    before = files_of(stopped)
    out = tmp_path / "second"
    refuse(*TRAIN, "--steps", 40, "--resume", "--out", out)  # without the mirror, by mistake
    assert not out.exists()
    for words in (("--seed", 9, "--resume"), ("--set", "nosuch=1")):
        refuse(*TRAIN, "--steps", 40, *words, "--out", out, "--mirror", url)
        assert files_of(stopped) == before
    assert any(out.rglob("journal-1"))  # it was restored


def test_a_folder_without_the_trials_of_the_mirror_does_not_replace_it(stopped, batchscale, tmp_path):
    before = files_of(stopped)
    other = tmp_path / "other"
    (other / "lost+found").mkdir(parents=True)
    (other / "notes.txt").write_text("mine")
    said = refuse(*TRAIN, "--steps", 40, "--out", other, "--mirror", f"file://{stopped}")
    assert "lacks 1 of its trials, such as noisy_quadratic/quadratic/sgd/32/1" in said
    assert files_of(stopped) == before
    assert files_of(other) == {Path("notes.txt"): b"mine"}
    third = tmp_path / "third"
    batchscale(*TRAIN, "--steps", 20, "--seed", 5, "--out", third)  # another trial, recorded as 1
    batchscale(*TRAIN, "--steps", 40, "--out", tmp_path / "first", "--mirror", f"file://{stopped}", "--new-trial")
    before = files_of(stopped)
    assert "lacks 1 of its trials" in refuse(*TRAIN, "--steps", 40, "--out", third, "--mirror", f"file://{stopped}")
    assert files_of(stopped) == before


def test_a_trial_that_was_killed_before_its_first_measurement_was_copied_is_resumed(batchscale, tmp_path):
    mirror = tmp_path / "remote"
    batchscale(*TRAIN, "--steps", 40, "--out", tmp_path / "whole")
    working = tmp_path / "whole" / ".batchscale" / "studies" / TABLE.rpartition("/1/")[0]
    begun = tmp_path / "begun" / working.relative_to(tmp_path / "whole")
    begun.mkdir(parents=True)
    shutil.copy(working / "chosen-1.json", begun)  # no more than what it was begun with
    open_mirror(tmp_path / "begun", f"file://{mirror}").sync()
    for words in (("--resume",), ()):
        out = tmp_path / f"out{len(words)}"
        batchscale(*TRAIN, "--steps", 40, "--out", out, "--mirror", f"file://{mirror}", *words)
        assert (out / TABLE).read_bytes() == (tmp_path / "whole" / TABLE).read_bytes()


def test_a_finished_run_is_there_again_from_its_mirror(batchscale, tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    run = ["run", tmp_path / "e.toml", "--runner", "inline", "--quiet", "--mirror", f"file://{tmp_path}/remote"]
    batchscale(*run, "--out", tmp_path / "first")
    batchscale(*run, "--out", tmp_path / "second")
    tables = sorted((tmp_path / "first").rglob("measurements.csv"))
    assert tables
    for table in tables:
        other = tmp_path / "second" / table.relative_to(tmp_path / "first")
        assert other.read_bytes() == table.read_bytes()
