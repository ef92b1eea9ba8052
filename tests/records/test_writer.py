import math
import threading

import numpy as np
import pytest
import records_witness
from hypothesis import given, settings
from hypothesis import strategies as st
from records_fakes import SPACE, WORKLOAD, FaultyFileSystem, MemoryFileSystem, make_rows, make_study, make_trial

from batchscale.errors import RecordsError, StorageError, StudyLockedError
from batchscale.records.check.tree import check_tree
from batchscale.records.durable import FileSystem
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.measurements import Measurement
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.read import read_tree
from batchscale.spec.workload_name import WorkloadName


def workload_folder(root):
    return root / "groups" / "tiny" / "net" / "sgd"


def test_the_witness_reads_what_was_written(tmp_path):
    with open_study(tmp_path, make_study(seed=7)) as writer:
        writer.append(1, make_rows(1, [0, 10]))
        writer.append(1, make_rows(1, [20]))
        writer.commit(make_trial(1))
        diverged = [
            Measurement(0, {"val/error": np.float32(0.1), "train/loss": 2.5}),
            Measurement(7, {"val/error": math.nan, "train/loss": math.inf}),
            Measurement(9, {"train/loss": -math.inf}),
        ]
        writer.commit(make_trial(2, 9, Status.INFEASIBLE), diverged)
    study = records_witness.read_workload(workload_folder(tmp_path))[8]
    assert study["dataset"] == "tiny"
    assert study["parameter_configs"] == SPACE.to_json()
    assert study["batchscale"].keys() == {"format_version", "seed", "metadata_sha256"}
    first, second = study["trials"][1], study["trials"][2]
    assert first["step"] == [0, 10, 20]
    assert first["metrics"] == ["val/error", "train/loss"]
    assert first["values"] == [[1 + step / 7, 1 / (1 + step)] for step in (0, 10, 20)]
    assert second["status"] == "INFEASIBLE"
    assert second["values"][0] == [0.1, 2.5]
    assert math.isnan(second["values"][1][0])
    assert second["values"][1][1] == math.inf
    assert second["values"][2] == [None, -math.inf]
    assert check_tree(tmp_path) == []


def test_there_are_only_numbered_folders_beside_studies_and_trials_while_a_trial_runs(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        writer.commit(make_trial(1), make_rows(1, [0, 20]))
        writer.append(2, make_rows(2, [0]))
        records_witness.read_workload(workload_folder(tmp_path))
        assert {path.name for path in tmp_path.iterdir()} == {".batchscale", "groups"}
        assert sorted(path.name for path in writer.folder.iterdir()) == ["1", "study.json"]


names = st.from_regex(r"[a-z][a-z_]{0,8}/[a-z][a-z_]{0,8}", fullmatch=True)
float32s = st.floats(width=32).map(np.float32)
cells = st.one_of(st.none(), st.floats(), float32s)


@st.composite
def measured_trials(draw):
    metrics = draw(st.lists(names, max_size=4, unique=True))
    steps = sorted(draw(st.sets(st.integers(0, 2**40), max_size=6)))
    return [Measurement(step, {name: draw(cells) for name in metrics}) for step in steps]


def same(written, read):
    if written is None or read is None:
        return written is read
    kind = np.float32 if isinstance(written, np.float32) else float
    return (math.isnan(written) and math.isnan(read)) or kind(read) == written


@settings(deadline=None, max_examples=60)
@given(
    trials=st.lists(measured_trials(), min_size=1, max_size=3),
    parameters=st.dictionaries(st.from_regex(r"[a-z_]{1,9}x", fullmatch=True), st.floats(-1e300, 1e300), max_size=3),
    batch_size=st.integers(1, 2**40),
    statuses=st.lists(st.sampled_from(list(Status)), min_size=3, max_size=3),
)
def test_what_is_written_is_what_is_read(trials, parameters, batch_size, statuses):
    from pathlib import Path

    fs, root = MemoryFileSystem(), Path("/tree")
    study = StudyRecord(WorkloadName("d", "m", "o"), batch_size, 0, True, SPACE, extra={"note": "ü"})
    with open_study(root, study, fs=fs) as writer:
        for trial_id, rows in enumerate(trials, start=1):
            steps = rows[-1].step if rows else 0
            writer.commit(TrialRecord(trial_id, statuses[trial_id - 1], steps, parameters, extra={"k": [1]}), rows)
    records = read_tree(root, pytest.fail, fs)
    assert records.studies["batch_size"].to_list() == [batch_size]
    assert records.studies["extra"].to_list() == ['{"note": "\\u00fc"}']
    assert records.trials["status"].to_list() == [status.value for status in statuses[: len(trials)]]
    for name, value in parameters.items():
        assert records.trials[name].to_list() == [value] * len(trials)
    frame = records.measurements_of(WorkloadName("d", "m", "o")).collect()
    for trial_id, rows in enumerate(trials, start=1):
        found = frame.filter(trial_id=trial_id).to_dicts()
        assert [row["step"] for row in found] == [row.step for row in rows]
        for row, read in zip(rows, found, strict=True):
            assert all(same(value, read[name]) for name, value in row.values.items())


def test_a_torn_journal_is_cut_at_every_byte_and_never_misread(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        writer.append(1, make_rows(1, [0, 10, 20]))
        path = writer.working_folder / "journal-1"
    whole = path.read_bytes()
    notices = []
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        notices.clear()
        with open_study(tmp_path, make_study(), notice=notices.append) as writer:
            steps = writer.journal(1).steps
            assert steps == [0, 10, 20][: max(0, whole[:size].count(b"\n") - 2)]
            assert bool(notices) == (size > 0 and whole[size - 1 : size] != b"\n")
            missing = [step for step in (0, 10, 20) if step not in steps]
            writer.append(1, make_rows(1, missing))
        assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [b"\0" * 30, b"12345678 20,1.0,1.0\n", b"garbage\n"])
def test_an_altered_journal_is_cut_where_it_stops_being_sound(tmp_path, damage):
    with open_study(tmp_path, make_study()) as writer:
        writer.append(1, make_rows(1, [0, 10]))
        path = writer.working_folder / "journal-1"
        sound = path.read_bytes()
    path.write_bytes(sound + damage + sound)
    notices = []
    with open_study(tmp_path, make_study(), notice=notices.append) as writer:
        assert writer.journal(1).steps == [0, 10]
    assert "dropped" in notices[0]


def test_a_committed_trial_trains_longer_and_is_replaced_whole(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        writer.commit(make_trial(1), make_rows(1, [0, 20]))
    with open_study(tmp_path, make_study()) as writer:
        writer.reopen(1)
        writer.append(1, make_rows(1, [30]))
    with open_study(tmp_path, make_study()) as writer:  # the extension under way survives
        assert writer.read_measurements(1).steps == [0, 20]
        assert writer.journal(1).steps == [0, 20, 30]
        writer.commit(make_trial(1, 30))
        assert writer.committed_trials()[1].steps == 30
        assert writer.read_measurements(1).steps == [0, 20, 30]
        assert [path.name for path in writer.working_folder.iterdir()] == ["lock"]


def test_a_reader_beside_an_extension_always_sees_a_whole_trial(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        writer.commit(make_trial(1), make_rows(1, [0, 20]))
        wrong, stop = [], threading.Event()

        def read():
            while not stop.is_set():
                try:
                    trial = records_witness.read_study(writer.folder)["trials"][1]
                except FileNotFoundError:  # opened the old folder, which was then removed
                    continue
                # metadata is read first: commits may come in between, so measurements are as new as it or newer
                last = trial["step"][-1]
                if last < trial["steps"] or trial["step"] != [0, *range(20, last + 1, 10)]:
                    wrong.append(trial)

        reader = threading.Thread(target=read)
        reader.start()
        for steps in range(30, 200, 10):
            writer.reopen(1)
            writer.append(1, make_rows(1, [steps]))
            writer.commit(make_trial(1, steps))
        stop.set()
        reader.join()
        assert not wrong


@pytest.mark.parametrize(
    ("act", "rule"),
    [
        (lambda w: w.commit(make_trial(0)), "from 1"),
        (lambda w: w.append(1, [Measurement(0, {"val/e": 1.0}), Measurement(0, {"val/e": 1.0})]), "steps grow"),
        (lambda w: w.append(1, [Measurement(0, {"val/e": 1.0}), Measurement(1, {"val/x": 1.0})]), "metrics of its"),
        (lambda w: w.append(1, [Measurement(0, {"a,b": 1.0})]), "split/metric"),
        (lambda w: w.append(1, [Measurement(0, {"val/e": "x"})]), "metric value"),
        (lambda w: w.commit(make_trial(1), [Measurement(30, {"val/e": 1.0})]), "later than the steps"),
        (lambda w: w.commit(make_trial(1, rate=math.nan)), "nan"),
        (lambda w: w.commit(TrialRecord(1, Status.COMPLETE, 1, {}, extra={"status": "x"})), "extra keys"),
        (lambda w: w.commit(TrialRecord(1, Status.COMPLETE, 1, {"steps": 1.0})), "name is text of its own"),
        (lambda w: w.reopen(5), "only a committed"),
        (lambda w: w.update(make_study(batch_size=16)), "keeps its workload"),
    ],
)
def test_what_the_format_does_not_allow_is_refused_and_nothing_appears(tmp_path, act, rule):
    with open_study(tmp_path, make_study()) as writer:
        with pytest.raises(RecordsError, match=rule):
            act(writer)
        assert [path.name for path in writer.folder.iterdir()] == ["study.json"]


def test_a_closed_writer_writes_nothing(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        pass
    with pytest.raises(RecordsError, match="closed"):
        writer.append(1, make_rows(1, [0]))


def test_a_second_writer_is_refused_with_the_first_ones_process(tmp_path):
    import os

    with open_study(tmp_path, make_study()):
        with pytest.raises(StudyLockedError, match=f"process {os.getpid()}"):
            open_study(tmp_path, make_study())
        with open_study(tmp_path, make_study(batch_size=16)) as other:  # another study of the tree is free
            other.commit(make_trial(1), make_rows(1, [20]))
    open_study(tmp_path, make_study()).close()


def test_another_experiments_study_is_refused_with_what_differs(tmp_path):
    open_study(tmp_path, make_study(spec_hash="a")).close()
    with pytest.raises(RecordsError, match=r"train_steps \(20 there, 50 wanted\)"):
        open_study(tmp_path, make_study(train_steps=50, spec_hash="b"))
    open_study(tmp_path, make_study(spec_hash="a")).close()


def test_a_damaged_trial_is_left_alone_and_never_written_over(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        writer.commit(make_trial(1), make_rows(1, [20]))
        writer.commit(make_trial(2), make_rows(2, [20]))
        damaged = writer.folder / "1" / "metadata.json"
    damaged.write_text("")
    with open_study(tmp_path, make_study(), notice=lambda _: None) as writer:
        assert list(writer.committed_trials()) == [2]
        assert list(writer.damaged_trials) == [1]
        with pytest.raises(RecordsError, match="move it out of the tree"):
            writer.commit(make_trial(1), make_rows(1, [20]))
    assert damaged.read_text() == ""


def test_foreign_files_in_the_working_folder_stay(tmp_path):
    with open_study(tmp_path, make_study()) as writer:
        checkpoint = writer.working_folder / "checkpoint-1"
        checkpoint.mkdir()
        (checkpoint / "state").write_text("x")
        (writer.working_folder / "new-3").mkdir()
    with open_study(tmp_path, make_study()) as writer:
        assert (checkpoint / "state").read_text() == "x"
        assert not (writer.working_folder / "new-3").exists()


def test_a_study_is_not_written_through_a_link_that_leads_outside(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tree" / "groups").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordsError, match="inside its tree"):
        open_study(tmp_path / "tree", make_study())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_tree_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordsError, match="Found a file"):
        open_study(tmp_path / "file", make_study())


def test_a_journal_is_written_anew_after_a_failed_sync(tmp_path):
    """After a failed fsync the system may call bytes clean that it never wrote; syncing again would prove nothing."""

    class FailingSync(FileSystem):
        failures = 0
        created = 0

        def fdatasync(self, handle):
            if self.failures:
                self.failures -= 1
                raise OSError(5, "Input/output error")
            super().fdatasync(handle)

        def create(self, path):
            self.created += 1
            return super().create(path)

    fs = FailingSync()
    with open_study(tmp_path, make_study(), fs=fs) as writer:
        writer.append(1, make_rows(1, [0]))
        fs.failures, before = 1, fs.created
        with pytest.raises(StorageError, match="Input/output error") as caught:
            writer.append(1, make_rows(1, [10]))
        assert caught.value.errno == 5
        writer.append(1, make_rows(1, [10, 20]))  # the same again, and more
        assert fs.created == before + 1
        assert writer.journal(1).steps == [0, 10, 20]


def test_every_call_of_the_store_goes_through_the_file_system_object(tmp_path):
    """A run on a disk in memory leaves the real one alone, and a counting one counts."""
    root = tmp_path / "tree"
    fs = MemoryFileSystem()
    for folder in reversed([root.parent, *root.parent.parents][:-1]):
        fs.mkdir(folder)
    counter = FaultyFileSystem(fs, at=-1)
    with open_study(root, make_study(), fs=counter) as writer:
        writer.commit(make_trial(1), make_rows(1, [20]))
    assert counter.count > 30
    assert not root.exists()
    assert WORKLOAD.model in {path.split("/")[-5] for path in fs.files() if path.endswith("metadata.json")}
