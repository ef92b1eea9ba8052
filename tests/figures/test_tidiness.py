"""Properties that every chart of several panels has: aligned titles, a goal, and a legend of what is drawn."""

from pathlib import Path

import altair as alt
import polars as pl
import pytest

from batchscale.figures.axes import LogRange, between_ticks
from batchscale.figures.frames import goal_notes
from batchscale.figures.kinds.curves import plot_curves
from batchscale.figures.kinds.effective_learning_rate import EFFECTIVE_SCHEMA
from batchscale.figures.kinds.map import LABEL_ROOM, contours, outcome_words
from batchscale.figures.kinds.space import SpaceSelection, plot_space, range_text, space_frame
from batchscale.figures.layout import Drawn, Look, draw_panels
from batchscale.figures.series import SERIES_SCHEMA
from batchscale.figures.theme import LIGHT
from batchscale.records.read import read_records
from batchscale.search.edge_guard import near_distance
from batchscale.spec.goal import Goal

RECORDS = Path(__file__).parents[2] / "examples" / "mnist_fc_records"


def panels_of(chart):
    return chart.to_dict()["concat"]


def num_lines(panel):
    title = panel["title"]
    return len(title["text"]) + len(title.get("subtitle", []))


def curve_rows(panel, goal, series="a", scale=1.0):
    values = dict.fromkeys(SERIES_SCHEMA)
    return pl.DataFrame(
        [
            values
            | {"panel": panel, "series": series, "goal": goal, "batch_size": size, "steps": 1000 / size}
            | {"value": 1000 / size / scale, "perfect": 1000 / size / scale, "baseline": "first"}
            for size in (1, 2, 4)
        ],
        schema=SERIES_SCHEMA,
    )


def test_titles_of_a_row_have_equally_many_lines():
    frame = pl.DataFrame({"panel": ["a", "b" * 60, "c", "d"]})
    notes = {"a": ["one note " * 20]}
    chart = draw_panels(frame, lambda part, _: Drawn([], notes.get(part["panel"][0], [])), Look(columns=3))
    lines = [num_lines(panel) for panel in panels_of(chart)]
    assert len(set(lines[:3])) == 1 and lines[0] > 2
    assert lines[3] == 1  # the next row is its own


def test_every_panel_names_its_goal():
    goals = ("val/error < 0.1", "val/error < 0.2")
    frame = pl.concat([curve_rows("p", goals[0]), curve_rows("q", goals[1])])
    subtitles = [panel["title"]["subtitle"][0] for panel in panels_of(plot_curves(frame))]
    assert subtitles == ["goal: validation error < 0.1", "goal: validation error < 0.2"]
    same = pl.concat([curve_rows("p", goals[0]), curve_rows("q", goals[0])])
    assert plot_curves(same).to_dict()["title"]["text"] == "goal: validation error < 0.1"  # once, over all panels
    both = pl.concat([curve_rows("p", goals[0]), curve_rows("p", goals[1], "b")])
    assert goal_notes(both) == ["goals: validation error < 0.1, 0.2"]
    assert "goal" in EFFECTIVE_SCHEMA


def test_a_normalised_axis_names_its_batch_size():
    frame = curve_rows("p", "val/error < 0.1", scale=500.0)  # the steps at batch size 2
    titles = {
        layer["encoding"]["y"]["axis"]["title"]
        for layer in plot_curves(frame).to_dict()["layer"]
        if "axis" in layer["encoding"]["y"]
    }
    assert titles == {"steps to result ÷ those at batch size 2"}


def test_the_legend_has_only_what_is_drawn():
    points = pl.DataFrame({"outcome": ["reached", "reached", "not_reached"], "best": [True, False, False]})
    assert outcome_words(points) == ["reached the goal", "did not reach it", "fewest steps"]
    assert outcome_words(points.filter("best")) == ["fewest steps"]


def test_labels_of_lines_stay_inside_the_panel():
    x_span, y_span = LogRange(-4.05, 0.5, 10), LogRange(-3, 0.1, 10)
    _, labels = contours(x_span, y_span, LIGHT, alt.X("learning_rate:Q"), alt.Y("one_minus_momentum:Q"))
    room = 10 ** (x_span.low + LABEL_ROOM * (x_span.high - x_span.low))
    assert all(row["learning_rate"] >= room for row in labels.data.values)


@pytest.mark.parametrize("low", [-4.02, -3.3, -1.9, -0.4])
@pytest.mark.parametrize("width", [0.8, 1.2, 2.0, 3.0])
def test_ticks_between_powers_have_room(low, width):
    ticks = between_ticks(LogRange(low, low + width, 10))
    assert 3 <= len(ticks) <= 9


def test_large_ends_of_a_range_have_no_exponent():
    assert range_text(1.85e6, 3.7e6) == "1.85 M to 3.7 M"
    assert range_text(8500, 17000) == "8,500 to 17,000"


def test_a_star_that_is_called_at_an_edge_lies_in_its_band():
    records = read_records(RECORDS)
    flagged = 0
    for name in records.workloads:
        frame = space_frame(records, SpaceSelection(name, Goal.parse("val/classification_error < 0.03")))
        stars = frame.filter("best").drop_nulls("edge")
        flagged += len(stars)
        for unit, near in stars.select("unit", "near").iter_rows():
            assert min(unit, 1 - unit) <= near
    assert flagged
    assert near_distance(1000) == 0.05 and near_distance(5) == pytest.approx(0.3)


def test_a_discrete_value_has_one_place_in_all_lanes():
    trials = [(2, 0.0, 0.25), (2, 0.1, 0.75), (4, 0.1, 5 / 6), (4, 0.0, 1 / 6), (4, 0.01, 0.5)]
    frame = pl.DataFrame(trials, schema=["batch_size", "value", "unit"], orient="row").with_columns(
        pl.lit("label smoothing").alias("panel"),
        pl.lit("val/error < 0.1").alias("goal"),
        pl.lit("reached").alias("outcome"),
        pl.lit(True).alias("discrete"),
        pl.lit(False).alias("best"),
        pl.lit(None, dtype=pl.String).alias("note"),
        pl.int_range(pl.len()).alias("trial_id"),
        *(pl.lit(value).alias(name) for name, value in {"low": 0.0, "high": 0.1, "near": 0.05}.items()),
        pl.lit(5).alias("steps_to_goal"),
    )
    places = {}
    for rows in plot_space(frame).to_dict()["datasets"].values():
        for row in rows:
            if "trial_id" in row and "text" not in row:
                places.setdefault(row["value"], set()).add(row["unit"])
    assert set(places) == {0.0, 0.01, 0.1} and all(len(units) == 1 for units in places.values())
