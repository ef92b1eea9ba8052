import html
from dataclasses import replace

import polars as pl
import pytest
from made_records import GOAL, METRIC, SPACE, MadeStudy, MadeTrial, make_records, simulated

from batchscale.analysis.answer import key_figures
from batchscale.analysis.curve_analysis import AnalysisOptions, analyze, analyze_points
from batchscale.analysis.regimes import Baseline, Regime
from batchscale.figures.axes import log_range, power_ticks, size_axis
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind
from batchscale.figures.kinds.curve import SHADE_OPACITY, analysis_frame, curve_frame, plot_curve, shaded_spans
from batchscale.figures.kinds.curves import plot_curves, with_rings
from batchscale.figures.layout import Look
from batchscale.figures.names import goal_label
from batchscale.figures.series import CurvePanel, Series, joint_panel, points_frame, series_frame, workload_panels
from batchscale.figures.theme import LIGHT
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName


def marks_of(spec: object, kind: str) -> list[dict]:
    """Every mark of a kind in a specification, however deep."""
    below = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else []
    mark = spec.get("mark") if isinstance(spec, dict) else None
    own = [mark] if isinstance(mark, dict) and mark.get("type") == kind else []
    return [*own, *(found for part in below for found in marks_of(part, kind))]


def _study(size: int, *steps: int | None, rate: float = 0.01) -> MadeStudy:
    """Trials that reach the goal at these steps, measured at the step before as well; None for one that does not."""
    trials = [
        MadeTrial(
            {"learning_rate": rate, "momentum": 0.5},
            [(0, {METRIC: 0.9}), ((s or 9) - 1, {METRIC: 0.5}), (s or 9, {METRIC: 0.05 if s else 0.5})],
        )
        for s in steps
    ]
    return MadeStudy(size, trials)


def three_regimes() -> Records:
    return make_records([_study(1, 800, 700), _study(4, 175), _study(16, 60, 50), _study(64, 48)])


def test_the_frame_has_the_fewest_steps_the_perfect_line_and_the_regimes():
    records = three_regimes()
    frame = curve_frame(records, GOAL, baseline=Baseline.FIRST)
    assert frame["steps"].drop_nulls().to_list() == [700, 175, 50, 48]
    assert frame["perfect"].drop_nulls().to_list() == [700, 175, 43.75, 10.9375]
    want = analyze(records, records.workloads[0], GOAL, AnalysisOptions(Baseline.FIRST)).summary.regimes
    assert frame["perfect_scaling_end"][0] == want.perfect_end == 16
    assert frame["max_useful_batch_size"][0] == want.max_useful_batch_size == 16
    assert shaded_spans(frame.drop_nulls("value")) == list(want.spans())


def test_a_winner_at_the_edge_of_its_space_is_flagged_and_drawn_hollow():
    inside = [_study(size, *[800 // size] * 6) for size in (1, 4, 16)]
    edge = SPACE["learning_rate"]["max_value"] * 0.99
    records = make_records([*inside, _study(64, *[12] * 4, rate=edge)])
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
    frame = series_frame(records, [panel])
    assert frame["steps"].to_list() == [800, None, 50]
    assert "goal not reached at batch size 4" in chart_svg(plot_curves(frame))


def test_one_goal_alone_is_named_since_no_legend_does(curve_records):
    frame = series_frame(curve_records, workload_panels(curve_records, [GOAL]))
    assert f"goal: {goal_label(GOAL)}" in html.unescape(chart_svg(plot_curves(frame, ordered=True)))


def test_the_ground_of_a_regime_never_hides_the_grid():
    spec = chart_spec(plot_curve(curve_frame(three_regimes(), GOAL)))
    grounds = marks_of(spec, "rect")
    assert grounds and all(mark["opacity"] <= SHADE_OPACITY < 1 for mark in grounds)
    assert LIGHT.ground not in {mark["color"] for mark in grounds}


def test_a_missing_workload_is_named_beside_those_that_are_there(curve_records):
    here = Series(curve_records.workloads[0], GOAL, "here")
    gone = Series(WorkloadName("no", "such", "sgd"), GOAL, "gone")
    frame = series_frame(curve_records, [CurvePanel("both", (here, gone))])
    svg = chart_svg(plot_curves(frame))
    assert "gone: no records of no/such/sgd" in svg
    assert frame.filter(pl.col("series") == "here")["value"].drop_nulls().len() > 3


def test_normalising_where_the_goal_was_not_reached_says_so():
    records = make_records([_study(1, 800), _study(4, None), _study(16, 50)])
    frame = series_frame(records, [replace(joint_panel(records, GOAL), normalise_at=4)])
    assert frame["value"].drop_nulls().is_empty()
    assert "normalising batch size 4" in frame["note"][0]


def test_ticks_are_the_measured_batch_sizes_and_round_numbers_of_steps():
    spec = chart_spec(plot_curve(curve_frame(simulated(), GOAL)))
    axes = [layer["encoding"]["x"]["axis"] for layer in spec["layer"] if "axis" in layer["encoding"].get("x", {})]
    assert axes[0]["values"] == [1, 4, 16, 64, 256, 1024]
    svg = chart_svg(plot_curve(curve_frame(simulated(), GOAL)))
    assert ">1,024<" in svg and ">1,000<" in svg and ">300<" in svg


def test_batch_sizes_that_are_no_powers_are_ticks_where_they_fit_and_powers_stand_in_where_they_do_not():
    span = log_range([1, 1347])
    assert size_axis(span, [1, 8, 64, 512, 1347], 400).to_dict()["values"] == [1, 8, 64, 512, 1347]
    many = [2**k for k in range(17)]
    assert size_axis(log_range(many), many, 300).to_dict()["values"] == power_ticks(log_range(many), 6)


def test_identical_curves_are_both_seen_and_named():
    records = make_records([_study(1, 800), _study(4, 200)])
    twins = tuple(Series(records.workloads[0], GOAL, label) for label in ("one", "two"))
    frame = series_frame(records, [CurvePanel("both", twins)])
    spec = chart_spec(plot_curves(frame))
    assert "one and two coincide" in " ".join(spec["title"]["subtitle"])
    dashes = [layer["mark"].get("strokeDash") for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert [7, 7] in dashes and [1, 0] in dashes
    rings = with_rings(frame).filter(pl.col("batch_size") == 4)
    assert rings["series"].to_list() == ["one", "two"]  # the lower mark is drawn first, and larger: it looks out
    assert rings["size"][0] > rings["size"][1]


def test_curve_curves_and_goals_draw_the_same_line_of_perfect_scaling(curve_records):
    request = FigureRequest(curve_records, (GOAL,))
    lines = [
        find_kind(name).data(request).drop_nulls("value").select("batch_size", "perfect", "baseline").rows()
        for name in ("curve", "curves", "goals")
    ]
    assert lines[0] == lines[1] == lines[2]
    for name in ("curve", "curves", "goals"):
        text = str(chart_spec(find_kind(name).plot(find_kind(name).data(request), LIGHT)))
        assert "perfect scaling through the point with the fewest examples" in text.replace("', '", " ")


def test_nothing_is_shaded_beyond_the_batch_sizes_measured():
    spec = chart_spec(plot_curve(curve_frame(three_regimes(), GOAL)))
    shades = [
        layer["data"]["name"]
        for layer in spec["layer"]
        if layer["mark"]["type"] == "rect" and layer["mark"]["color"] in LIGHT.shade
    ]
    ends = [row for name in shades for row in spec["datasets"][name]]
    assert ends and min(row["from"] for row in ends) >= 1 and max(row["to"] for row in ends) <= 64


def drawn_rows(spec, kind: str, colour: str):
    layers = [m for m in spec["layer"] if m["mark"]["type"] == kind and m["mark"]["color"] == colour]
    return [row for layer in layers for row in spec["datasets"][layer["data"]["name"]]]


def test_the_critical_batch_size_is_a_line_in_its_interval_with_the_number_of_the_key_figure():
    steps = [round(100 * (1 + 60 / size)) for size in (1, 4, 16, 64, 256, 1024)]
    noisy = [s * f for s, f in zip(steps, (1.02, 0.97, 1.03, 0.98, 1.02, 0.99), strict=True)]
    points = pl.DataFrame({"batch_size": [1, 4, 16, 64, 256, 1024], "steps": noisy})
    answer = analyze_points(points)
    critical, figure = answer.summary.critical, key_figures(answer.summary)[0]
    spec = chart_spec(plot_curve(analysis_frame(answer)))
    assert drawn_rows(spec, "rule", LIGHT.series[0])[0]["at"] == critical.value
    assert drawn_rows(spec, "rect", LIGHT.series[0]) == [{"at": critical.low, "to": critical.high}]
    assert f"critical batch size {figure.value}" in [mark.get("text") for mark in marks_of(spec, "text")]


def test_sizes_where_steps_clearly_rise_are_not_shaded():
    points = {1: 6400, 4: 1600, 16: 400, 64: 110, 256: 100, 1024: 101, 4096: 300, 16384: 900}
    answer = analyze_points(pl.DataFrame({"batch_size": list(points), "steps": list(points.values())}))
    frame = analysis_frame(answer).drop_nulls("value")
    regimes = dict(frame.select("batch_size", "regime").rows())
    assert regimes[1024] == Regime.MAXIMAL and regimes[4096] == regimes[16384] == Regime.RISING
    shaded = drawn_rows(chart_spec(plot_curve(frame)), "rect", LIGHT.shade[1])
    assert [row["to"] for row in shaded] == [1024]


def test_a_bare_chart_has_neither_title_nor_notes(curve_records):
    chart = plot_curve(curve_frame(curve_records, GOAL), Look(is_bare=True))
    assert "title" not in chart_spec(chart) and "dashed: perfect" not in chart_svg(chart)


def test_bare_points_make_a_curve():
    points = pl.DataFrame({"batch_size": [4, 1, 16], "steps": [25.5, 100.2, 10.1]})
    panel = CurvePanel("published", (Series(WorkloadName("a", "b", "c"), Goal(METRIC, 0.1), "published"),))
    frame = points_frame(points, panel, Baseline.FIRST)
    assert frame["value"].to_list() == [100.2, 25.5, 10.1]
    assert frame["perfect"].to_list() == pytest.approx([100.2, 25.05, 6.2625])


def test_figure_1_from_the_published_points_shows_what_the_paper_says_in_words():
    import runpy
    from pathlib import Path

    examples = Path(__file__).parents[2] / "examples"
    frame = runpy.run_path(str(examples / "figure_1_from_points.py"))["read_points"](examples / "paper_figure_1.csv")
    assert frame["panel"].n_unique() == 9 and frame["value"].null_count() == 0
    first_line = AnalysisOptions(Baseline.FIRST)
    ends = {panel: analyze_points(part, first_line).summary.regimes for (panel,), part in frame.group_by("panel")}
    assert ends["ResNet-8 on CIFAR-10"].perfect_end == 2**8
    assert ends["LSTM on LM1B"].perfect_end == 2**4
    assert ends["ResNet-50 on ImageNet"].perfect_end == 2**13
    assert not ends["ResNet-50 on ImageNet"].max_useful_reached
    first = frame.group_by("panel").first()
    assert first["perfect"].to_list() == pytest.approx(first["value"].to_list())
