"""What the command line does when the system refuses: one paragraph and exit code 2, never a traceback."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from batchscale.cli.app import main

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
from small_disks import resize, small_disk

RECORDS = Path(__file__).parents[1] / "formats" / "format_1" / "finished"
LONG = "x" * 300
EXPERIMENT = """
goal = "val/classification_error < 0.1"
batch_sizes = [64]
trials = 2
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "sgd"
"""


def run_main(monkeypatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["batchscale", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def start(*words: object, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "batchscale", *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("words", [["analyze", RECORDS], ["analyze", RECORDS, "--json"], ["--help"]], ids=str)
def test_output_that_cannot_be_written_is_said_in_one_line(words):
    with Path("/dev/full").open("w") as full:
        process = start(*words, stdout=full)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert "standard output" in errors and "No space left" in errors


def test_a_reader_that_has_had_enough_is_no_error():
    process = start("analyze", RECORDS, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # before anything is printed
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.parametrize("path", [LONG, f"a/{LONG}/b", "/" + "y/" * 3000], ids=["name", "folder", "whole"])
@pytest.mark.parametrize(
    "words",
    [
        ["analyze", "PATH"],
        ["check", "PATH"],
        ["summary", "PATH"],
        ["status", "PATH"],
        ["validate", "PATH"],
        ["fit", "PATH"],
        ["report", "PATH", "--out", "r.html"],
        ["figure", "curve", "PATH", "--out", "f.svg"],
        ["compare", "PATH", "PATH"],
        ["import", "PATH", "--out", "t"],
        ["import", RECORDS, "--out", "PATH"],
        ["export", "PATH", "--out", "t"],
        ["run", "experiment.toml", "--out", "PATH"],
        ["run", "experiment.toml", "--out", "o", "--data-dir", "PATH"],
        ["plan", "PATH"],
        ["suggest", "PATH", "--batch-size", "4"],
        ["data", "get", "mnist", "--from", "PATH"],
    ],
    ids=lambda words: " ".join(str(word) for word in words if word is not RECORDS),
)
def test_a_path_that_no_file_system_takes_is_one_paragraph(tmp_path, monkeypatch, capsys, words, path):
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(EXPERIMENT)
    assert run_main(monkeypatch, *(path if word == "PATH" else word for word in words)) == 2
    errors = capsys.readouterr().err.strip()
    assert errors.startswith("Error: ") and "Traceback" not in errors
    assert {entry.name for entry in tmp_path.iterdir()} == {"experiment.toml"}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ('file = "\\u0000"', "'file' must be the path of a Python file"),
        (f'file = "{"m" * 400}"', "workload.file must be a Python file"),
        ('schedule = "piecewise_linear"\noptimizer_options = { schedule_steps = [0, 9], schedule_factors = [1, nan] }',
         "a number must be finite"),
        (f'optimizer_options = {{ schedule_factors = [1, {10**400}] }}', "a whole number of 1329 bits"),
        (f"model_options = {{ widths = [{2**63 - 1}] }}", "a number must be finite, and a whole one below 2"),
        ("model_options = { widths = [1000000000] }", "whole numbers from 1 to 999,999"),
    ],
)  # fmt: skip
def test_nonsense_in_a_workload_is_one_paragraph(tmp_path, monkeypatch, capsys, key, message):
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(EXPERIMENT + key)
    for words in (["validate", "experiment.toml"], ["run", "experiment.toml", "--out", "o"]):
        assert run_main(monkeypatch, *words) == 2
        assert message in capsys.readouterr().err
    assert not Path("o").exists()


def test_an_import_that_fills_the_disk_says_so_and_the_next_one_goes_on(tmp_path, monkeypatch, capsys):
    disk = tmp_path / "disk"
    with small_disk(disk, kilobytes=4):
        for kilobytes in (4, 12, 20, 28):
            resize(disk, kilobytes)
            assert run_main(monkeypatch, "import", RECORDS, "--out", disk / "table") == 2
            errors = capsys.readouterr().err
            assert "No space left on device" in errors and "Traceback" not in errors
            assert not (disk / "table").exists()
        resize(disk, 2_000)
        assert run_main(monkeypatch, "import", RECORDS, "--out", disk / "table") == 0
        assert run_main(monkeypatch, "check", disk / "table") == 0


def test_analyze_right_after_the_start_says_that_there_is_no_trial_yet(tmp_path, monkeypatch, capsys):
    shutil.copytree(RECORDS, tmp_path / "begun")
    for metadata in list((tmp_path / "begun").rglob("metadata.json")):
        shutil.rmtree(metadata.parent)
    assert run_main(monkeypatch, "analyze", tmp_path / "begun") == 2
    assert "has no trial yet" in capsys.readouterr().err


def test_a_figure_of_a_metaparameter_that_nobody_searched_names_those_that_are(tmp_path, monkeypatch, capsys):
    words = ["figure", "metaparameter", RECORDS, "--metaparameter", "beta3", "--out", tmp_path / "f.svg"]
    assert run_main(monkeypatch, *words) == 2
    errors = capsys.readouterr().err
    assert "beta3" in errors and "learning_rate" in errors
    assert not (tmp_path / "f.svg").exists()


def test_thousands_of_parameters_in_one_trial_are_refused_at_once(tmp_path, monkeypatch, capsys):
    shutil.copytree(RECORDS, tmp_path / "tree")
    path = next((tmp_path / "tree").rglob("4/2/metadata.json"))
    data = json.loads(path.read_text())
    data["parameters"] |= {f"p{number}": 0.5 for number in range(5000)}
    path.write_text(json.dumps(data))
    assert run_main(monkeypatch, "check", tmp_path / "tree") == 1
    assert "too-many-parameters" in capsys.readouterr().out
    assert run_main(monkeypatch, "analyze", tmp_path / "tree") == 0
    assert "at most 100 parameters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cell", "new", "rule"), [(r"^\d+,", f"{2**62},", "bad-step"), (r",[^,\n]+$", ",1e400", "non-numeric")]
)
def test_numbers_that_nothing_can_hold_are_faults_of_a_tree(tmp_path, monkeypatch, capsys, cell, new, rule):
    shutil.copytree(RECORDS, tmp_path / "tree")
    path = next((tmp_path / "tree").rglob("4/2/measurements.csv"))
    *lines, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, re.sub(cell, new, last, count=1)]))
    assert run_main(monkeypatch, "check", tmp_path / "tree") == 1
    assert f" {rule}: " in capsys.readouterr().out
    assert run_main(monkeypatch, "import", tmp_path / "tree", "--out", tmp_path / "table") == 2
