import json
from pathlib import Path

import polars as pl
import pytest
from bad_input import BAD_INPUT, HOSTILE
from made_records import GOAL

from batchscale.figures.export import chart_page, chart_spec, chart_svg
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind, kind_names
from batchscale.figures.paper import PAPER_FIGURES
from batchscale.figures.theme import DARK, LIGHT
from batchscale.spec.durations import Budget, Unit

FIRST = ("goal_never_reached", "hostile_names", "nan_metrics", "one_trial")


@pytest.mark.parametrize(
    "problem", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in sorted(BAD_INPUT)]
)
def test_every_kind_comes_out_and_says_missing_sentences(problem):
    records = BAD_INPUT[problem]()
    for name in kind_names():
        kind = find_kind(name)
        request = FigureRequest(records, (GOAL,), budgets=(Budget(50, Unit.STEPS),) if name == "budget" else ())
        frame = kind.data(request)
        svg = chart_svg(kind.plot(frame, LIGHT))
        assert svg.startswith("<svg"), name
        if problem in ("goal_never_reached", "nan_metrics") and name == "curve":
            assert "reached" in " ".join(frame["note"].drop_nulls())
        if problem == "nothing":
            assert "to draw" in svg, name
        if problem == "another_metric" and name not in ("budget",):
            assert frame["note"].drop_nulls().len() > 0, name
        assert "<script" not in svg


def test_paper_figures_of_records_without_the_workloads_say_so():
    records = BAD_INPUT["one_trial"]()
    for recipe in PAPER_FIGURES.values():
        frame = recipe.data(records)
        assert frame["note"].drop_nulls().len() == len(frame), recipe.name
        assert "no records of" in frame["note"][0]
        if recipe.number in (1, 9, 11, 13):  # one of each way to draw; all 24 would take long
            assert "no records of" in chart_svg(recipe.draw(frame, DARK))


def test_hostile_names_cannot_leave_the_data_of_a_page():
    records = BAD_INPUT["hostile_names"]()
    frame = find_kind("space").data(FigureRequest(records, (GOAL,)))
    assert HOSTILE[:20] in " ".join(frame["panel"].unique())
    page = chart_page(find_kind("space").plot(frame, LIGHT), title=HOSTILE)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page  # the title
    data = page.split('id="specification">', 1)[1].split("</script>", 1)[0]
    assert "<" not in data
    assert HOSTILE[:20] in json.dumps(json.loads(data), ensure_ascii=False).replace('\\"', '"')


def test_a_thousand_trials_are_thinned_in_training_curves():
    records = BAD_INPUT["thousand_trials"]()
    frame = find_kind("training").data(FigureRequest(records, (GOAL,)))
    drawn = frame.group_by("panel").agg(pl.col("trial_id").n_unique())
    assert drawn["trial_id"].max() <= 202  # 200 faint ones, the best, and the row that says so
    assert "of 1,000 trials" in " ".join(frame["note"].drop_nulls())


def test_specifications_are_json_without_nan(tmp_path: Path):
    records = BAD_INPUT["some_nan_metrics"]()
    for kind in map(find_kind, kind_names()):
        json.dumps(chart_spec(kind.plot(kind.data(FigureRequest(records, (GOAL,))), LIGHT)), allow_nan=False)
