from pathlib import Path

import pytest

from batchscale.errors import RecordsError
from batchscale.records.check.stored import check_records
from batchscale.records.check.tree import check_tree
from batchscale.records.table.export import export_records
from batchscale.records.table.files import read_table
from batchscale.records.table.import_records import ImportOptions, import_records

from .conftest import Synthetic, small_members, trial_json, write_tar


def test_a_sound_archive_and_table_have_no_violations(tmp_path: Path, synthetic: Synthetic) -> None:
    assert check_records(synthetic.table) == []
    assert check_records(write_tar(tmp_path / "x.tar", small_members())) == []


def test_an_archive_has_the_violations_that_its_tree_has(tmp_path: Path) -> None:
    folder = "mnist/fc/sgd/8"
    members = small_members() | {
        f"root/{folder}/1/metadata.json": trial_json(1, status="DONE"),
        f"root/{folder}/2/metadata.json": trial_json(2, parameters={"learning_rate": 50.0}, steps=1),
        f"root/{folder}/2/measurements.csv": b"step,val/error\n1,1\n1,2\n",
    }
    del members[f"root/{folder}/10/measurements.csv"], members["root/mnist/fc/sgd/16/study.json"]
    for name, data in members.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    archive = write_tar(tmp_path / "x.tar", members)
    expected = [(v.path.relative_to(tmp_path), v.line, v.rule, v.found) for v in check_tree(tmp_path / "root")]
    assert len(expected) >= 6
    assert [(v.path.relative_to(archive), v.line, v.rule, v.found) for v in check_records(archive)] == expected


def test_hostile_members_duplicates_and_damage_are_violations(tmp_path: Path) -> None:
    members = [*small_members().items(), ("../x", b""), ("root/mnist/fc/sgd/8/study.json", b"{}")]
    archive = write_tar(tmp_path / "x.tar", members)
    assert [v.rule for v in check_records(archive)] == ["archive-member", "archive-member"]
    archive.write_bytes(archive.read_bytes()[:-11_000])
    assert "archive-damage" in [v.rule for v in check_records(archive)]


def test_a_changed_or_missing_file_of_a_table_is_a_violation(tmp_path: Path) -> None:
    import_records(write_tar(tmp_path / "x.tar", small_members()), tmp_path / "table")
    trials = tmp_path / "table" / "trials.parquet"
    data = trials.read_bytes()
    trials.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    assert [(v.path, v.rule) for v in check_records(tmp_path / "table")] == [(trials, "table-file")]
    trials.unlink()
    assert [v.found for v in check_records(tmp_path / "table")] == ["No such file or directory"]
    with pytest.raises(RecordsError, match="cannot be read"):
        read_table(tmp_path / "table")


def test_a_table_of_a_tree_that_breaks_rules_has_the_violations_of_that_tree(tmp_path: Path) -> None:
    members = small_members() | {
        "root/mnist/fc/sgd/8/2/metadata.json": trial_json(2, parameters={"learning_rate": 50.0}, steps=1)
    }
    import_records(write_tar(tmp_path / "x.tar", members), tmp_path / "table", ImportOptions(keep_going=True))
    export_records(tmp_path / "table", tmp_path / "tree")
    expected = [(v.path.relative_to(tmp_path / "tree"), v.line, v.rule) for v in check_tree(tmp_path / "tree")]
    assert {rule for _, _, rule in expected} == {"outside-space", "too-few-steps"}
    found = check_records(tmp_path / "table")
    assert [(v.path.relative_to(tmp_path / "table"), v.line, v.rule) for v in found] == expected
