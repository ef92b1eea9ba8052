"""Measurements that were changed after their trial was recorded are found, and the trial is named."""

import json
import shutil

import pytest
from records_fakes import make_rows, make_study, make_trial

from batchscale.errors import RecordsError
from batchscale.records.check.stored import check_records
from batchscale.records.check.tree import check_tree
from batchscale.records.table.export import export_records
from batchscale.records.table.import_records import ImportOptions, import_records
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.read import read_tree


@pytest.fixture
def folder(tmp_path):
    """The folder of a study of two trials, in a tree of its own."""
    with open_study(tmp_path / "tree", make_study(spec_hash="a")) as writer:
        for trial_id in (1, 2):
            writer.commit(make_trial(trial_id), make_rows(trial_id, [0, 10, 20]))
        return writer.folder


def change_a_digit(folder):
    path = folder / "1" / "measurements.csv"
    path.write_bytes(path.read_bytes().replace(b"1.0", b"1.5", 1))


def swap_two_cells(folder):
    path = folder / "1" / "measurements.csv"
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    rows[0][1:], rows[1][1:] = rows[1][1:], rows[0][1:]
    path.write_text("".join(",".join(row) + "\n" for row in [header, *rows]))


def take_another_trials(folder):
    shutil.copy(folder / "2" / "measurements.csv", folder / "1" / "measurements.csv")


CHANGES = [change_a_digit, swap_two_cells, take_another_trials]


@pytest.mark.parametrize("change", CHANGES)
def test_check_names_the_changed_file(folder, tmp_path, change):
    assert check_tree(tmp_path / "tree") == []
    change(folder)
    (violation,) = check_tree(tmp_path / "tree")
    assert (violation.path, violation.rule) == (folder / "1" / "measurements.csv", "changed-measurements")


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_trial_is_damaged_for_the_next_writer_and_the_others_are_not(folder, tmp_path, change):
    change(folder)
    notices = []
    with open_study(tmp_path / "tree", make_study(spec_hash="a"), notice=notices.append) as writer:
        assert list(writer.committed_trials()) == [2]
        assert str(folder / "1" / "measurements.csv") in writer.damaged_trials[1]
    assert len(notices) == 1


@pytest.mark.parametrize("change", CHANGES)
def test_import_refuses_a_changed_trial_or_leaves_it_out(folder, tmp_path, change):
    change(folder)
    with pytest.raises(RecordsError, match=r"tiny/net/sgd/8/1/measurements.csv: .*as it was when.*--keep-going"):
        import_records(tmp_path / "tree", tmp_path / "table")
    summary = import_records(tmp_path / "tree", tmp_path / "table", ImportOptions(keep_going=True))
    assert sum(summary.trials.values()) == 1
    assert "8/1/measurements.csv" in summary.problems[0]


def test_check_of_an_archive_names_the_changed_file(folder, tmp_path):
    change_a_digit(folder)
    archive = shutil.make_archive(str(tmp_path / "records"), "tar", tmp_path / "tree", "groups")
    rules = {(violation.path.parts[-2:], violation.rule) for violation in check_records(tmp_path / archive)}
    assert rules == {(("1", "measurements.csv"), "changed-measurements")}


def test_an_exported_tree_has_the_measurements_that_were_recorded(folder, tmp_path):
    import_records(tmp_path / "tree", tmp_path / "table")
    export_records(tmp_path / "table", tmp_path / "again")
    assert check_tree(tmp_path / "again") == []
    for path in folder.rglob("*"):
        if path.is_file():
            assert (tmp_path / "again" / path.relative_to(tmp_path / "tree")).read_bytes() == path.read_bytes()


def test_a_trial_without_a_checksum_is_read_as_before(folder, tmp_path):
    path = folder / "1" / "metadata.json"
    data = json.loads(path.read_text())
    data["batchscale"] = {"seed": 1}
    path.write_text(json.dumps(data))
    change_a_digit(folder)
    assert check_tree(tmp_path / "tree") == []
    with open_study(tmp_path / "tree", make_study(spec_hash="a")) as writer:
        assert list(writer.committed_trials()) == [1, 2]


@pytest.mark.parametrize("other", [make_study(batch_size=16, spec_hash="a"), make_study(spec_hash="b")])
def test_a_journal_of_another_study_is_found(folder, tmp_path, other):
    with open_study(tmp_path / "other", other) as writer:
        writer.append(3, make_rows(3, [0, 10]))
        journal = writer.working_folder / "journal-3"
    with open_study(tmp_path / "tree", make_study(spec_hash="a")) as writer:
        target = writer.working_folder / "journal-3"
    shutil.copy(journal, target)
    with open_study(tmp_path / "tree", make_study(spec_hash="a"), notice=lambda _: None) as writer:
        assert f"{target}: a journal belongs to the trial" in writer.damaged_trials[3]
        with pytest.raises(RecordsError, match="belongs to the trial"):
            writer.journal(3)
    assert [(v.path, v.rule) for v in check_tree(tmp_path / "tree")] == [(target, "foreign-journal")]
    assert target.read_bytes() == journal.read_bytes()


def test_a_tree_of_a_later_version_is_refused_by_name(folder, tmp_path):
    for path, key in ((folder / "study.json", "study"), (folder / "2" / "metadata.json", "trial")):
        text = path.read_text()
        data = json.loads(text)
        data["batchscale"] = {"format_version": 99, key: "?"}
        path.write_text(json.dumps(data))
        with pytest.raises(RecordsError, match=rf"{path}: .*up to 2\. Found version 99"):
            read_tree(tmp_path / "tree")
        assert [(v.path, v.rule) for v in check_tree(tmp_path / "tree")] == [(path, "newer-format")]
        path.write_text(text)


def test_facts_of_a_wrong_kind_cost_their_own_trial_and_are_named(folder, tmp_path):
    path = folder / "2" / "metadata.json"
    data = json.loads(path.read_text())
    data["batchscale"]["seed"] = "seven"
    path.write_text(json.dumps(data, indent=2))
    notices = []
    assert read_tree(tmp_path / "tree", notices.append).trials["trial_id"].to_list() == [1]
    assert "batchscale.seed is a whole number" in notices[0]
    changed, violation = check_tree(tmp_path / "tree")
    assert (changed.path, changed.rule) == (path, "changed-metadata")
    assert (violation.path, violation.rule) == (path, "bad-facts")
    assert violation.line is not None


def edit_json(path, change, indent=2):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=indent))


def set_learning_rate(data):
    data["parameters"]["learning_rate"] *= 1.01


def set_status(data):
    data["status"] = "INFEASIBLE"


def set_seed(data):
    data["batchscale"]["seed"] = 12345


def add_a_key(data):
    data["note"] = "mine"


METADATA_CHANGES = [set_learning_rate, set_status, set_seed, add_a_key]


@pytest.mark.parametrize("change", METADATA_CHANGES)
def test_changed_metadata_of_a_trial_is_found_by_check_run_import_and_readers(folder, tmp_path, change):
    tree, path = tmp_path / "tree", folder / "1" / "metadata.json"
    edit_json(path, change)
    assert [(v.path, v.rule) for v in check_tree(tree)] == [(path, "changed-metadata")]
    with open_study(tree, make_study(spec_hash="a"), notice=lambda _: None) as writer:
        assert list(writer.committed_trials()) == [2]
        assert "as they were when they were recorded" in writer.damaged_trials[1]
    with pytest.raises(RecordsError, match=r"8/1/metadata.json: .*as they were when.*--keep-going"):
        import_records(tree, tmp_path / "table")
    notices = []
    records = read_tree(tree, notices.append)
    assert records.trials["trial_id"].to_list() == [2]
    assert len(notices) == 1 and notices[0].startswith(f"{path}: ") and "metadata_sha256" in notices[0]


def set_train_steps(data):
    data["train_steps"] += 1


def set_space(data):
    data["parameter_configs"]["learning_rate"]["max_value"] *= 2


@pytest.mark.parametrize("change", [set_train_steps, set_space])
def test_a_changed_study_file_is_found_by_check_run_import_and_readers(folder, tmp_path, change):
    tree, path = tmp_path / "tree", folder / "study.json"
    edit_json(path, change)
    assert "changed-metadata" in {v.rule for v in check_tree(tree) if v.path == path}
    with pytest.raises(RecordsError, match="as they were when they were recorded"):
        open_study(tree, make_study(spec_hash="a"))
    with pytest.raises(RecordsError, match="as they were when they were recorded"):
        import_records(tree, tmp_path / "table")
    with pytest.raises(RecordsError, match="no readable study"):
        read_tree(tree, lambda _: None)


def test_a_file_that_is_only_laid_out_anew_is_unchanged(folder, tmp_path):
    for path in (folder / "study.json", folder / "1" / "metadata.json"):
        data = json.loads(path.read_text())
        path.write_text(json.dumps(dict(reversed(data.items()))))
    assert check_tree(tmp_path / "tree") == []


def test_a_change_that_is_meant_needs_the_checksum_removed(folder, tmp_path):
    path = folder / "1" / "metadata.json"
    edit_json(path, lambda data: (set_learning_rate(data), data["batchscale"].pop("metadata_sha256")))
    uncovered = []
    assert check_records(tmp_path / "tree", uncovered.append) == []
    assert uncovered == [path]
    assert read_tree(tmp_path / "tree", pytest.fail).trials.height == 2


def test_an_archive_and_a_table_with_changed_metadata_are_found(folder, tmp_path):
    edit_json(folder / "1" / "metadata.json", set_status)
    archive = shutil.make_archive(str(tmp_path / "records"), "tar", tmp_path / "tree", "groups")
    assert {violation.rule for violation in check_records(tmp_path / archive)} == {"changed-metadata"}


def test_a_reader_says_that_measurements_changed_once(folder, tmp_path):
    change_a_digit(folder)
    notices = []
    records = read_tree(tmp_path / "tree", notices.append)
    assert notices == []  # measurements are read when they are needed
    for _ in range(2):
        records.measurements_of(records.workloads[0]).collect()
    assert len(notices) == 1 and "measurements.csv is as it was" in notices[0] and "do not rely" in notices[0]
    assert records.first_trials(1).notices == notices


def test_a_trial_committed_again_while_it_is_read_is_no_damage(folder, tmp_path):
    records = read_tree(tmp_path / "tree", pytest.fail)
    with open_study(tmp_path / "tree", make_study(spec_hash="a")) as writer:
        writer.commit(make_trial(1, 30), make_rows(1, [0, 10, 20, 30]))
    assert records.measurements_of(records.workloads[0]).filter(trial_id=1).collect().height == 4


def test_a_trial_that_is_half_replaced_is_no_damage(folder, tmp_path):
    """Where folders cannot be exchanged, measurements are replaced first; the rest waits in the working folder."""
    change_a_digit(folder)
    with open_study(tmp_path / "tree", make_study(spec_hash="a"), notice=lambda _: None) as writer:
        (writer.working_folder / "ready-1").mkdir()
    records = read_tree(tmp_path / "tree", pytest.fail)
    records.measurements_of(records.workloads[0]).collect()
