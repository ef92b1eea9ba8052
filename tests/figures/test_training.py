import polars as pl
import pytest
from made_records import GOAL, METRIC, MadeStudy, MadeTrial, make_records, simulated

from batchscale.figures.export import chart_svg
from batchscale.figures.kinds.training import cut_lines, plot_training, training_frame, training_panels


def drawn_bold(*curves):
    trials = [MadeTrial({"learning_rate": 0.1}, [(i * 10, {METRIC: v}) for i, v in enumerate(c)]) for c in curves]
    records = make_records([MadeStudy(8, trials)])
    frame = training_frame(records, training_panels(records, GOAL))
    return frame.drop_nulls("series")["series"].unique().to_list()


def test_the_bold_trial_is_the_one_with_the_fewest_steps_to_the_goal_not_the_lowest_error():
    assert drawn_bold([0.9, 0.5, 0.01], [0.9, 0.09, 0.08]) == ["fewest steps: trial 2"]


def test_where_no_trial_reached_the_goal_the_lowest_error_is_bold():
    assert drawn_bold([0.9, 0.5, 0.4], [0.9, 0.3, 0.6]) == ["best: trial 2"]


def test_lines_are_cut_exactly_where_they_cross_the_ends_of_the_axis():
    points = pl.DataFrame({"trial_id": [1, 1, 1, 2, 2], "step": [0, 10, 20, 0, 10], "value": [3.0, 1.0, 2.0, 5.0, 4.0]})
    rows = cut_lines(points, 0.0, 2.5).rows()
    # (trial, step, value): 3 at step 0 falls to 1 at step 10, so it passes 2.5 at a quarter of the way
    assert rows == [(1, 0.0, None), (1, 2.5, 2.5), (1, 10.0, 1.0), (1, 20.0, 2.0), (2, 0.0, None), (2, 10.0, None)]


def test_a_line_costs_a_renderer_no_layer_of_its_own():
    """An opacity or a clip per line made a picture of 24 panels take 28 minutes."""
    records = simulated((16, 64))
    svg = chart_svg(plot_training(training_frame(records, training_panels(records, GOAL))))
    assert svg.count("<path") > 20
    assert 'stroke-opacity="0.35"' in svg
    assert ' opacity="0.35"' not in svg and "clip-path" not in svg


@pytest.mark.parametrize("step", [5, 15])
def test_cutting_keeps_what_is_inside(step):
    points = pl.DataFrame({"trial_id": [1, 1], "step": [0, step], "value": [1.0, 2.0]})
    assert cut_lines(points, 0.0, 3.0).rows() == [(1, 0.0, 1.0), (1, float(step), 2.0)]
