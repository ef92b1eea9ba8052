import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from batchscale.cli.app import make_app
from batchscale.errors import RecordsError
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.measurements import Measurement
from batchscale.records.tree.open_study import open_study
from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    study = StudyRecord(WorkloadName("g/d", "m", "o"), 8, 20, False, SearchSpace())
    with open_study(root, study) as writer:
        writer.commit(TrialRecord(1, Status.COMPLETE, 20, {}), [Measurement(20, {"val/e": 0.5})])
        writer.commit(TrialRecord(2, Status.INFEASIBLE, 3, {}), [Measurement(3, {"val/e": float("nan")})])
    return root


@pytest.fixture
def archive(tree: Path, tmp_path: Path) -> Path:
    path = tmp_path / "x.tar.bz2"
    with tarfile.open(path, "w:bz2") as tar:
        tar.add(tree / "g", "top/g")
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(make_app(), [str(arg) for arg in args])


def test_import_says_what_it_found(archive: Path, tmp_path: Path) -> None:
    result = run("import", archive, "--out", tmp_path / "table")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == f"{tmp_path / 'table'}: 1 workload, 1 study"
    assert "trials        2 (1 COMPLETE, 1 INFEASIBLE)" in result.stdout
    assert "measurements  2" in result.stdout
    assert "metrics       val/e" in result.stdout
    assert "problems      0" in result.stdout
    assert result.stderr == ""


def test_import_as_json_names_the_source_and_its_checksum(archive: Path, tmp_path: Path) -> None:
    found = json.loads(run("import", archive, "--out", tmp_path / "table", "--json").stdout)
    assert (found["studies"], found["trials"], found["complete"]) == (1, {"COMPLETE": 1, "INFEASIBLE": 1}, True)
    assert len(found["source"]["sha256"]) == 64


@pytest.mark.parametrize("command", ["summary", "check"])
def test_summary_and_check_take_a_tree_a_table_and_an_archive_alike(
    archive: Path, tree: Path, tmp_path: Path, command: str
) -> None:
    run("import", archive, "--out", tmp_path / "table")
    outputs = {run(command, place, "--json").stdout for place in (tree, tmp_path / "table", archive)}
    assert len(outputs) == 1
    found = json.loads(outputs.pop())
    study = {"dataset": "g/d", "model": "m", "optimizer": "o", "batch_size": 8, "complete": 1, "infeasible": 1}
    if command == "check":
        assert found == {"version": 1, "violations": [], "not_covered": 1}
    else:
        assert study.items() <= found["studies"][0].items()
        assert found["totals"] == {"studies": 1, "trials": 2, "measurements": 2}


def test_export_writes_the_tree_back(archive: Path, tree: Path, tmp_path: Path) -> None:
    run("import", archive, "--out", tmp_path / "table")
    result = run("export", tmp_path / "table", "--out", tmp_path / "back")
    assert result.stdout == f"{tmp_path / 'back'}: 1 study, 2 trials, 2 measurements\n"
    for path in (tree / "g").rglob("*.*"):
        assert (tmp_path / "back" / path.relative_to(tree)).read_bytes() == path.read_bytes()


def test_keep_going_lists_what_was_left_out_on_standard_error(archive: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    with tarfile.open(archive) as source, tarfile.open(bad, "w") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
        info = tarfile.TarInfo("top/g/d/m/o/8/3/metadata.json")
        info.size = 2
        target.addfile(info, io.BytesIO(b"[]"))
    assert isinstance(run("import", bad, "--out", tmp_path / "table").exception, RecordsError)
    result = run("import", bad, "--out", tmp_path / "table", "--keep-going")
    assert result.exit_code == 0
    assert "problems      1" in result.stdout
    assert "8/3/metadata.json" in result.stderr


def test_a_mistake_is_one_paragraph_and_exit_code_2(tmp_path: Path) -> None:
    program = "from batchscale.cli.app import main; main()"
    command = [sys.executable, "-c", program, "import", str(tmp_path / "none.tar"), "--out", str(tmp_path / "table")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
