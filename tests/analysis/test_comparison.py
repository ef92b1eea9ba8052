import math

import polars as pl
import pytest
from build_records import METRIC, SPACE, curve_studies, make_records

from batchscale.analysis.comparison import compare, normalise, ratio_of
from batchscale.analysis.curve_analysis import analyze, analyze_points
from batchscale.analysis.intervals import Estimate
from batchscale.errors import AnalysisError
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

SIZES = [2**i for i in range(0, 16, 2)]
SGD, MOMENTUM = WorkloadName("toy", "net", "sgd"), WorkloadName("toy", "net", "momentum")


def answers(own=None, factors=(1.0, 1.05, 1.1, 1.3, 2.0)):
    laws = {SGD: 16, MOMENTUM: 256}
    workloads = {
        name: curve_studies(
            {size: 10_000 * (1 + critical / size) for size in SIZES}, factors=factors, own=own if name == SGD else None
        )
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


def test_bare_points_compare_with_an_interval_of_their_residuals():
    points = {name: analyze_points(answer.curve.select("batch_size", "steps")) for name, answer in answers().items()}
    row = compare(points).table.row(1, named=True)
    assert row["ratio"] == pytest.approx(16, rel=0.01)
    assert row["ratio_low"] <= 16 <= row["ratio_high"]


def test_ratios_need_no_common_batch_size():
    laws = {"one": ([1, 4, 16, 64, 256], 16), "other": ([2, 8, 32, 128, 512], 64)}
    one, other = (
        analyze_points(pl.DataFrame({"batch_size": sizes, "steps": [100 * (1 + critical / b) for b in sizes]}))
        for sizes, critical in laws.values()
    )
    result = compare({"one": one, "other": other})
    assert result.table["ratio"][1] == pytest.approx(4, rel=1e-3)
    assert result.overlay.is_empty()
    with pytest.raises(AnalysisError, match="not 4"):
        compare({"one": one, "other": other}, normalise_at=4)


def test_the_ratio_of_two_estimates_adds_their_distances_in_quadrature():
    # Log-normal estimates with known errors: the closed form is exp(log ratio ± z sqrt(a² + b²)).
    one, other = (
        Estimate(8.0, 8 / math.exp(0.3), 8 * math.exp(0.3)),
        Estimate(2.0, 2 / math.exp(0.4), 2 * math.exp(0.4)),
    )
    ratio = ratio_of(one, other)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((4, 4 / math.exp(0.5), 4 * math.exp(0.5)))
    assert ratio_of(Estimate(8.0, 4.0, None), other).high is None
    assert ratio_of(Estimate(None, 4.0, None), other).value is None


def test_studies_at_an_edge_or_searched_again_are_noted():
    wide = {"learning_rate": SPACE["learning_rate"] | {"min_value": 1e-9, "max_value": 1.0}}  # 0.01: 22 % below its top
    searches = [{"space": wide, "ranges": [[1, 0]]}] * 2
    own = {"format_version": 2, "goal": f"{METRIC} < 0.1", "searches": searches, "edge_margin": 0.3}
    some = "1, 4, 16, 64, 256, 1,024 and 2 more"
    few = (1.0, 1.05, 1.1, 1.3)  # trials, so that the margin alone decides
    notes = compare(answers(own, few)).table["notes"].to_list()
    assert notes == [f"at edge at batch size {some}; searched again at batch size {some}", None]


def test_one_curve_is_no_comparison():
    with pytest.raises(AnalysisError, match="Found 1"):
        compare(dict([next(iter(answers().items()))]))


def finished(is_finished):
    """The metadata of a study that asked for five trials, with its result or without."""
    return {"trials": 5, **({"finding": {"goal_reached": True}} if is_finished else {})}


def two_runs(goal=0.1, is_finished=True):
    """A finished run and one whose critical batch size is 16 times as large, which may lack a result."""
    runs = {}
    for name, critical, own, bound in ((SGD, 16, finished(True), 0.1), (MOMENTUM, 256, finished(is_finished), goal)):
        law = {size: 10_000 * (1 + critical / size) for size in SIZES}
        records = make_records({name: curve_studies(law, factors=(1.0, 1.02, 1.03, 1.04, 1.05), own=own)})
        runs[str(name)] = analyze(records, name, Goal(METRIC, bound))
    return runs


def test_a_clear_difference_of_finished_runs_is_more_than_chance():
    sentences = compare(two_runs()).sentences
    assert len(sentences) == 1
    assert sentences[0].endswith("more than chance.")


def test_different_goals_travel_with_the_comparison():
    text = " ".join(compare(two_runs(goal=0.2)).sentences)
    assert "more than chance" not in text
    assert "but the goals differ." in text
    assert "was measured to another goal than toy/net/sgd (val/error < 0.2 against val/error < 0.1)" in text


def test_an_unfinished_run_travels_with_the_comparison():
    result = compare(two_runs(is_finished=False))
    text = " ".join(result.sentences)
    assert "more than chance" not in text
    assert "but toy/net/momentum is not finished." in text
    assert "Doubt about toy/net/momentum: the search is not finished at batch size 1, 4, 16, 64, 256, 1,024" in text
    assert result.table["unfinished"].to_list() == [[], SIZES]


def test_doubts_travel_with_the_comparison():
    both = {
        "sure": analyze_points(bare({size: 100 * (1 + 16 / size) for size in SIZES})),
        "doubtful": analyze_points(bare({size: 100 * (1 + 256 / size) for size in SIZES} | {2**17: None})),
    }
    result = compare(both)
    text = " ".join(result.sentences)
    assert "which the doubts below may explain" in text
    assert "Doubt about doubtful: the goal was not reached at batch size 131,072." in text
    assert result.table["doubts"].to_list() == [[], ["the goal was not reached at batch size 131,072"]]


def test_there_is_no_ratio_of_a_critical_batch_size_that_nothing_bounds():
    loose = analyze_points(bare({15360: 47.0, 16384: 46.83, 18432: 46.5}))
    assert not loose.summary.critical.has_interval
    result = compare({"known": analyze_points(bare({size: 100 * (1 + 16 / size) for size in SIZES})), "loose": loose})
    assert result.table["ratio"].to_list() == [1.0, None]
    assert "There is no ratio of critical batch sizes: the critical batch size of loose is not bounded." in " ".join(
        result.sentences
    )


def bare(points):
    schema = {"batch_size": pl.Int64, "steps": pl.Float64}
    return pl.DataFrame(list(points.items()), schema=schema, orient="row")
