import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import RecordsError
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.measurements import Measurement
from batchscale.records.tree.open_study import open_study
from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName


@pytest.fixture
def tree(tmp_path):
    study = StudyRecord(WorkloadName("g/d", "m", "o"), 8, 20, False, SearchSpace())
    with open_study(tmp_path, study) as writer:
        writer.commit(TrialRecord(1, Status.COMPLETE, 20, {}), [Measurement(20, {"val/e": 0.5})])
        writer.commit(TrialRecord(2, Status.INFEASIBLE, 3, {}), [])
    return tmp_path


def run(*args):
    return CliRunner().invoke(make_app(), [str(arg) for arg in args])


def test_check_of_a_sound_tree_is_exit_code_0(tree):
    result = run("check", tree)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first == "No violations."
    assert second.startswith("Not covered: 1 of the files study.json") and "g/d/m/o/8/study.json" in second
    assert json.loads(run("check", tree, "--json").stdout) == {"version": 1, "violations": [], "not_covered": 1}


def test_check_of_a_violation_is_exit_code_1_with_path_and_line(tree):
    path = tree / "g/d/m/o/8/1/measurements.csv"
    path.write_text("step,val/e\n1,x\n20,1\n")
    result = run("check", tree)
    assert result.exit_code == 1
    assert f"{path}:2: non-numeric" in result.stdout
    rows = json.loads(run("check", tree, "--json").stdout)["violations"]
    assert {"path": str(path), "line": 2, "rule": "non-numeric", "found": "'x'"} in rows


def test_what_cannot_be_read_is_exit_code_2_and_one_paragraph(tree):
    (tree / "g/d/m/o/8/1/metadata.json").write_bytes(b'{"\xff": 1}')
    result = run("check", tree)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "summary"])
def test_bad_paths_are_one_error_and_exit_code_2_without_a_traceback(tmp_path, command):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("empty", "file", "none"):
        assert isinstance(run(command, tmp_path / name).exception, RecordsError)
    program = "from batchscale.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, command, tmp_path / "empty"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: A records tree holds")
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "empty").iterdir()) == []


def test_summary_shows_the_table_and_the_totals(tree):
    result = run("summary", tree)
    assert result.exit_code == 0
    cells = [cell.strip() for cell in result.stdout.splitlines()[3].split("|")[1:-1]]
    assert cells == ["g/d", "m", "o", "8", "1", "0", "1", "1"]
    assert result.stdout.splitlines()[-1] == "1 study, 2 trials, 1 measurement."
    data = json.loads(run("summary", tree, "--json").stdout)
    assert data["totals"] == {"studies": 1, "trials": 2, "measurements": 1}
    assert data["studies"][0]["infeasible"] == 1


def test_summary_says_what_it_left_out(tree):
    (tree / "g/d/m/o/8/2/metadata.json").write_text("")
    result = run("summary", tree)
    assert result.exit_code == 2
    assert "1 trial," in result.stdout
    assert "The trial is left out." in result.stderr


def test_a_summary_fits_a_narrow_terminal(tree, monkeypatch):
    wide = run("summary", tree).stdout
    assert "\n| Dataset" in wide
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run("summary", tree).stdout
    assert max(map(len, narrow.splitlines()[:-1])) <= 40
    assert all(word in narrow for word in ("Measurements", "g/d", "8"))
