"""The answer at a glance: trust in key figures, and doubts only about points that would move the answer."""

import polars as pl
import pytest
from build_records import METRIC, NAME, curve_studies, make_records

from batchscale.analysis.answer import Trust, make_answer
from batchscale.analysis.curve_analysis import UNMOVED, analyze, analyze_points
from batchscale.spec.goal import Goal

GOAL = Goal(METRIC, 0.1)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def law(size):
    return 1000 * (1 + 64 / size)


def studies(spread, loose=()):
    """Studies on a hyperbola; the trials of ``loose`` sizes lie ``spread`` apart, so that more would move them."""
    tight = curve_studies({size: law(size) for size in SIZES if size not in loose}, factors=TIGHT)
    wide = curve_studies({size: law(size) for size in loose}, factors=[spread**i for i in range(12)])
    return sorted(tight + wide, key=lambda study: study["batch_size"])


TIGHT = [1 + 0.004 * i for i in range(12)]


def points(rows):
    return analyze_points(pl.DataFrame(rows, schema={"batch_size": pl.Int64, "steps": pl.Float64}, orient="row"))


def test_a_point_that_more_trials_would_move_is_doubted_only_if_the_answer_moves_with_it():
    harmless = analyze(make_records(studies(1.12, loose=(16,))), NAME, GOAL)
    serious = analyze(make_records(studies(2.5, loose=(32, 64, 128))), NAME, GOAL)
    assert not harmless.curve["still_moves"].any()
    assert harmless.curve.filter(batch_size=16)["stability"].to_list() == [UNMOVED]
    moving = serious.curve.filter("still_moves")["batch_size"].to_list()
    assert moving and set(moving) <= {32, 64, 128}
    text = " ".join(make_answer(serious).notes)
    assert "would likely move the answer (goal reached by 12 of 12)" in text


def test_the_three_figures_of_a_textbook_curve_are_well_determined():
    answer = make_answer(points([(size, law(size)) for size in SIZES]))
    critical, perfect, fewest = answer.figures
    assert (critical.value, perfect.value) == ("64", "16")
    assert all(figure.trust is Trust.SOLID for figure in (critical, perfect, fewest))
    assert answer.notes == ()


def test_steps_that_still_fall_leave_the_fewest_steps_undetermined():
    answer = make_answer(points([(size, law(size)) for size in SIZES if size <= 16]))
    fewest = answer.figures[2]
    assert (fewest.value, fewest.interval, fewest.trust) == ("> 16", "steps still fall", Trust.NONE)


def test_points_that_no_law_describes_have_no_critical_batch_size_and_no_solid_figure():
    rows = [(1, 100), (2, 900), (4, 50), (8, 700), (16, 20), (32, 300), (64, 15)]
    answer = make_answer(points(rows))
    assert answer.figures[0].trust is Trust.NONE
    assert all(figure.trust is not Trust.SOLID for figure in answer.figures)
    assert len(answer.advice) <= 3


def test_a_coarse_point_beside_a_figure_makes_it_doubtful():
    rows = [(size, law(size), 0.0 if size != 64 else 900.0) for size in SIZES]
    schema = {"batch_size": pl.Int64, "steps": pl.Float64, "spacing": pl.Float64}
    answer = make_answer(analyze_points(pl.DataFrame(rows, schema=schema, orient="row")))
    assert answer.figures[0].trust is Trust.DOUBTFUL
    assert any("evaluate every" in note for note in answer.notes)


@pytest.mark.parametrize("rows", [[(8, 100.0)], []])
def test_too_few_points_give_the_reason_and_no_figures(rows):
    answer = make_answer(points(rows))
    assert answer.figures == () and len(answer.advice) == 1
