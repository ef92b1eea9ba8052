import pytest
from build_records import METRIC, SPACE, curve_studies, make_records

from batchscale.analysis import analyze, analyze_points, compare, normalise
from batchscale.errors import AnalysisError
from batchscale.spec import Goal, WorkloadName

SIZES = [2**i for i in range(0, 16, 2)]
SGD, MOMENTUM = WorkloadName("toy", "net", "sgd"), WorkloadName("toy", "net", "momentum")


def answers(own=None):
    laws = {SGD: 16, MOMENTUM: 256}
    workloads = {
        name: curve_studies({size: 10_000 * (1 + critical / size) for size in SIZES}, own=own if name == SGD else None)
        for name, critical in laws.items()
    }
    records = make_records(workloads)
    return {str(name): analyze(records, name, Goal(METRIC, 0.1)) for name in laws}


def test_the_ratio_of_critical_batch_sizes_has_an_interval_that_holds_it():
    result = compare(answers())
    row = result.table.row(1, named=True)
    assert row["ratio"] == pytest.approx(16, rel=0.01)
    assert row["ratio_low"] < 16 < row["ratio_high"]
    assert row["end_ratio"] == 16
    (sentence,) = result.sentences
    assert "toy/net/momentum extends perfect scaling 16-fold over toy/net/sgd" in sentence
    assert "more than chance" in sentence


def test_the_first_curve_is_what_the_others_are_held_against():
    both = answers()
    row = compare(dict(reversed(both.items()))).table.row(1, named=True)
    assert row["ratio"] == pytest.approx(1 / 16, rel=0.01)


def test_curves_are_normalised_at_the_smallest_batch_size_they_share():
    curves = {name: answer.curve for name, answer in answers().items()}
    frame = normalise(curves)
    assert frame.filter(batch_size=1)["normalised_steps"].to_list() == [1, 1]
    at_16 = normalise(curves, at=16)
    assert at_16.filter(batch_size=16)["normalised_steps"].to_list() == [1, 1]
    with pytest.raises(AnalysisError, match="not 3"):
        normalise(curves, at=3)


def test_bare_points_compare_without_an_interval():
    points = {name: analyze_points(answer.curve.select("batch_size", "steps")) for name, answer in answers().items()}
    row = compare(points).table.row(1, named=True)
    assert row["ratio"] == pytest.approx(16, rel=0.01)
    assert row["ratio_low"] is None


def test_studies_at_an_edge_or_searched_again_are_noted():
    own = {"goal": f"{METRIC} < 0.1", "searches": [{"space": SPACE}] * 2}
    own["verdict"] = {"at_edge": [{"parameter": "learning_rate", "side": "high"}]}
    some = "1, 4, 16, 64, 256, 1,024 and 2 more"
    notes = compare(answers(own)).table["notes"].to_list()
    assert notes == [f"at edge at batch size {some}; searched again at batch size {some}", None]


def test_one_curve_is_no_comparison():
    with pytest.raises(AnalysisError, match="Found 1"):
        compare(dict([next(iter(answers().items()))]))
