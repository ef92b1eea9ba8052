from dataclasses import replace

import polars as pl
import pytest
from made_records import GOAL, METRIC, SPACE, MadeStudy, MadeTrial, make_records, simulated

from batchscale.analysis import Baseline, analyze, find_regimes
from batchscale.figures.curve import curve_frame, plot_curve
from batchscale.figures.curve_frame import CurvePanel, Series, curves_frame, joint_panel, points_frame
from batchscale.figures.curves import plot_curves
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.spec import Goal, WorkloadName


def _study(size: int, *steps: int | None, rate: float = 0.01) -> MadeStudy:
    trials = [
        MadeTrial(
            {"learning_rate": rate, "momentum": 0.5}, [(0, {METRIC: 0.9}), (s or 9, {METRIC: 0.05 if s else 0.5})]
        )
        for s in steps
    ]
    return MadeStudy(size, trials)


def test_the_frame_has_the_fewest_steps_the_perfect_line_and_the_regimes():
    records = make_records([_study(1, 800, 700), _study(4, 175), _study(16, 60, 50), _study(64, 48)])
    frame = curve_frame(records, GOAL, baseline=Baseline.FIRST)
    assert frame["steps"].drop_nulls().to_list() == [700, 175, 50, 48]
    assert frame["perfect"].drop_nulls().to_list() == [700, 175, 43.75, 10.9375]
    want = find_regimes(pl.DataFrame({"batch_size": [1, 4, 16, 64], "steps": [700, 175, 50, 48]}), baseline="first")
    assert frame["perfect_scaling_end"][0] == want.perfect_scaling_end == 16
    assert frame["max_useful_batch_size"][0] == want.max_useful_batch_size == 16


def test_a_winner_at_the_edge_of_its_space_is_flagged_and_drawn_hollow():
    inside = [_study(size, *[800 // size] * 6) for size in (1, 4, 16)]
    edge = SPACE["learning_rate"]["max_value"] * 0.99
    records = make_records([*inside, _study(64, *[12] * 6, rate=edge)])
    frame = curve_frame(records, GOAL)
    flags = dict(frame.drop_nulls("batch_size").select("batch_size", "flags").rows())
    assert flags[1] is None
    assert "learning_rate high" in flags[64]
    assert "hollow" in chart_svg(plot_curve(frame))


def test_intervals_are_those_of_the_analysis(curve_records):
    frame = curve_frame(curve_records, GOAL)
    want = analyze(curve_records, curve_records.workloads[0], GOAL).curve.sort("batch_size")
    assert frame.drop_nulls("batch_size")["steps_low"].to_list() == want["steps_low"].to_list()
    assert frame["steps_low"].drop_nulls().len() > 0


def test_a_batch_size_that_did_not_reach_the_goal_keeps_its_row_and_is_named():
    records = make_records([_study(1, 800), _study(4, None), _study(16, 50)])
    panel = joint_panel(records, GOAL)
    frame = curves_frame(records, [panel])
    assert frame["steps"].to_list() == [800, None, 50]
    assert "goal not reached at batch size 4" in chart_svg(plot_curves(frame))


def test_a_missing_workload_is_named_beside_those_that_are_there(curve_records):
    here = Series(curve_records.workloads[0], GOAL, "here")
    gone = Series(WorkloadName("no", "such", "sgd"), GOAL, "gone")
    frame = curves_frame(curve_records, [CurvePanel("both", (here, gone))])
    svg = chart_svg(plot_curves(frame))
    assert "gone: no records of no/such/sgd" in svg
    assert frame.filter(pl.col("series") == "here")["value"].drop_nulls().len() > 3


def test_normalising_where_the_goal_was_not_reached_says_so():
    records = make_records([_study(1, 800), _study(4, None), _study(16, 50)])
    frame = curves_frame(records, [replace(joint_panel(records, GOAL), normalise_at=4)])
    assert frame["value"].drop_nulls().is_empty()
    assert "normalising batch size 4" in frame["note"][0]


def test_ticks_of_both_axes_are_powers_of_two():
    spec = chart_spec(plot_curve(curve_frame(simulated(), GOAL)))
    text = str(spec)
    assert "'type': 'log', 'base': 2" in text or "'base': 2" in text
    svg = chart_svg(plot_curve(curve_frame(simulated(), GOAL)))
    assert "2⁴" in svg and "2¹⁰" in svg


def test_bare_points_make_a_curve():
    points = pl.DataFrame({"batch_size": [4, 1, 16], "steps": [25.5, 100.2, 10.1]})
    panel = CurvePanel("published", (Series(WorkloadName("a", "b", "c"), Goal(METRIC, 0.1), "published"),))
    frame = points_frame(points, panel)
    assert frame["value"].to_list() == [100.2, 25.5, 10.1]
    assert frame["perfect"].to_list() == pytest.approx([100.2, 25.05, 6.2625])


def test_figure_1_from_the_published_points_shows_what_the_paper_says_in_words():
    import runpy
    from pathlib import Path

    examples = Path(__file__).parents[2] / "examples"
    frame = runpy.run_path(str(examples / "figure_1_from_points.py"))["read_points"](examples / "paper_figure_1.csv")
    assert frame["panel"].n_unique() == 9 and frame["value"].null_count() == 0
    ends = {panel: find_regimes(part, baseline="first") for (panel,), part in frame.group_by("panel")}
    assert ends["ResNet-8 on CIFAR-10"].perfect_scaling_end == 2**8
    assert ends["LSTM on LM1B"].perfect_scaling_end == 2**4
    assert ends["ResNet-50 on ImageNet"].perfect_scaling_end == 2**13
    assert not ends["ResNet-50 on ImageNet"].max_useful_reached
    first = frame.group_by("panel").first()
    assert first["perfect"].to_list() == pytest.approx(first["value"].to_list())
