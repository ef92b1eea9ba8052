import polars as pl
import pytest
from records_fakes import WORKLOAD, make_rows, make_study, make_trial

from batchscale.errors import RecordsError
from batchscale.records.frames import STUDY_SCHEMA, TRIAL_SCHEMA, Records
from batchscale.records.model import Status
from batchscale.records.summary import summarize
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.read import read_tree, read_trial
from batchscale.spec.workload_name import WorkloadName


@pytest.fixture
def tree(tmp_path):
    other = WorkloadName("plain", "net", "momentum")
    for study in (make_study(8), make_study(64), make_study(8, workload=other)):
        with open_study(tmp_path, study) as writer:
            writer.commit(make_trial(1), make_rows(1, [0, 10, 20]))
            writer.commit(make_trial(2, 10, Status.INFEASIBLE), make_rows(2, [0, 10]))
            writer.commit(make_trial(10), make_rows(10, [20]))
    return tmp_path


def test_a_tree_becomes_frames_of_the_declared_schemas(tree):
    records = read_tree(tree)
    assert records.studies.schema == pl.Schema(STUDY_SCHEMA)
    assert records.trials.schema == pl.Schema({**TRIAL_SCHEMA, "learning_rate": pl.Float64})
    assert records.workloads == [WORKLOAD, WorkloadName("plain", "net", "momentum")]
    assert records.trials["trial_id"].to_list() == [1, 2, 10] * 3
    frame = records.measurements_of(WORKLOAD).collect()
    assert frame.columns == ["batch_size", "trial_id", "step", "val/error", "train/loss"]
    assert frame.select("batch_size", "trial_id", "step").rows() == [
        (size, *row) for size in (8, 64) for row in ((1, 0), (1, 10), (1, 20), (2, 0), (2, 10), (10, 20))
    ]


@pytest.mark.parametrize(
    ("part", "num_studies", "dataset"),
    [
        ("groups", 2, "tiny"),
        ("groups/tiny", 2, "tiny"),
        ("groups/tiny/net", 2, "tiny"),
        ("groups/tiny/net/sgd", 2, "tiny"),
        ("groups/tiny/net/sgd/64", 1, "tiny"),
    ],
)
def test_a_part_of_a_tree_can_be_read(tree, part, num_studies, dataset):
    records = read_tree(tree / part)
    assert records.studies.height == num_studies
    assert set(records.studies["dataset"]) == {dataset}
    assert records.measurements.collect().height == 6 * num_studies


def test_measurements_are_read_when_they_are_asked_for(tree):
    records = read_tree(tree)
    for path in tree.glob("plain/*/*/*/*/measurements.csv"):
        path.unlink()
    assert records.measurements_of(WORKLOAD).collect().height == 12


def test_damage_costs_its_own_trial_and_is_said(tree):
    base = tree / "groups/tiny/net/sgd/8"
    (base / "1/metadata.json").write_text("")
    (base / "2/measurements.csv").unlink()
    (base / "10/measurements.csv").write_text("step,val/error\n0,1\n5,0.")
    (tree / "plain/net/momentum/8/study.json").write_text("{}")
    notices = []
    records = read_tree(tree, notices.append)
    assert records.workloads == [WORKLOAD]
    rows = records.measurements_of(WORKLOAD).filter(batch_size=8).collect()
    assert rows.select("trial_id", "step", "val/error", "train/loss").rows() == [(10, 0, 1.0, None)]
    assert [notice.split(":")[0].removeprefix(f"{tree}/") for notice in notices] == [
        "groups/tiny/net/sgd/8/1/metadata.json",
        "plain/net/momentum/8/study.json",
        "groups/tiny/net/sgd/8/2/measurements.csv",
        "groups/tiny/net/sgd/8/10/measurements.csv",  # it is not as it was recorded
        "groups/tiny/net/sgd/8/10/measurements.csv",  # and has a torn line
    ]
    assert records.notices == notices


def test_the_same_study_twice_is_read_once(tree):
    import shutil

    part = tree / "groups/tiny/net"
    shutil.copytree(part / "sgd/8", part / "copy/8")
    notices = []
    read_tree(part, notices.append)
    assert len(notices) == 1
    assert "the same study" in notices[0]


def test_one_trial_is_read(tree):
    record, table = read_trial(tree / "groups/tiny/net/sgd/8/2")
    assert (record.status, table.steps) == (Status.INFEASIBLE, [0, 10])
    with pytest.raises(RecordsError, match="missing"):
        read_trial(tree)


def test_the_summary_counts_studies_trials_and_measurements(tree):
    summary = summarize(read_tree(tree))
    assert (summary.num_studies, summary.num_trials, summary.num_measurements) == (3, 9, 18)
    assert summary.table.rows()[1] == ("groups/tiny", "net", "sgd", 64, 2, 0, 1, 6, None, None)


def test_a_study_without_trials_is_counted(tmp_path):
    open_study(tmp_path, make_study()).close()
    records = read_tree(tmp_path)
    assert isinstance(records, Records)
    assert summarize(records).table.rows() == [("groups/tiny", "net", "sgd", 8, 0, 0, 0, 0, None, None)]
