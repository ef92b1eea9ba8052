"""Charts of the atlas and of laws: their frames are what they should show, and their specifications say it."""

import json

import numpy as np
import polars as pl
import pytest

from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.laws import grid_laws
from batchscale.atlas.table import read_atlas, read_step_law
from batchscale.figures.atlas_sizes import plot_sizes, sizes_frame
from batchscale.figures.export import chart_spec
from batchscale.figures.kinds.atlas import atlas_frame, plot_atlas
from batchscale.figures.law_charts import iso_token_frame, law_frame, plot_iso_tokens, plot_laws

SCHEMA = {"batch_size": pl.Int64, "steps": pl.Float64}


@pytest.fixture(scope="module")
def atlas():
    whole = read_atlas()
    return whole.select(whole.curves.filter("main"))


def hyperbola(b_crit=64):
    rows = [(size, 500 * (1 + b_crit / size)) for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)]
    return analyze_points(pl.DataFrame(rows, schema=SCHEMA, orient="row"))


def test_a_hyperbola_over_its_critical_size_is_one_and_its_inverse_halved():
    whole = read_atlas()
    frame = atlas_frame(whole.select(whole.curves.clear()), [hyperbola()])
    ratio, value = frame["ratio"].to_numpy(), frame["value"].to_numpy()
    assert value == pytest.approx((1 + 1 / ratio) / 2, rel=1e-3)
    assert set(frame["series"]) == {"yours"}


def test_every_curve_with_a_bounded_critical_size_is_drawn_and_passes_through_one(atlas):
    frame = atlas_frame(atlas, [hyperbola()])
    bounded = atlas.curves.drop_nulls(["b_crit", "b_crit_low", "b_crit_high"])
    drawn = frame.drop_nulls("value")
    assert drawn["curve"].n_unique() == len(bounded) + 1
    assert f"{len(atlas.curves) - len(bounded)} curves" in frame["note"].drop_nulls()[0]
    for _, rows in drawn.group_by("curve"):
        rows = rows.sort("ratio")
        if rows["ratio"].min() < 1 < rows["ratio"].max():
            at_one = np.interp(0, np.log(rows["ratio"].to_numpy()), np.log(rows["value"].to_numpy()))
            assert at_one == pytest.approx(0, abs=1e-9)
    text = json.dumps(chart_spec(plot_atlas(frame)), ensure_ascii=False)
    assert "your curve" in text and "perfect scaling" in text


def test_sizes_have_the_values_and_intervals_of_the_table(atlas):
    frame = sizes_frame(atlas, [hyperbola()])
    row = frame.filter((pl.col("curve") == "mlperf-llama31_405b-training-5.0") & (pl.col("boundary") == "B_crit"))
    assert set(row["x"]) == {322_560.0, 405e9} and row["value"].n_unique() == 1
    listed = atlas.curves.filter(pl.col("curve") == "mlperf-llama31_405b-training-5.0").row(0, named=True)
    assert row["value"][0] == listed["b_crit"] and row["value_low"][0] == listed["b_crit_low"]
    yours = frame.filter(pl.col("series") == "yours")
    assert yours["value"][0] == pytest.approx(64, rel=0.01) and yours["x"][0] == pytest.approx(500 * 65, rel=0.01)
    assert "90 % intervals" in json.dumps(chart_spec(plot_sizes(frame)))


def test_laws_are_drawn_with_points_published_lines_and_the_plan():
    grid = read_step_law()
    laws = grid_laws(grid)
    plan = {name: law.predict(20e9, 1e9) for name, law in laws.laws.items()}
    frame = law_frame(laws, plan)
    counts = dict(frame.group_by("what").len().rows())
    assert counts["prediction"] == 3 and counts["point"] == sum(len(law.points) for law in laws.laws.values())
    line = frame.filter(
        (pl.col("what") == "published") & (pl.col("series") == "Step Law") & (pl.col("quantity") == "b_opt")
    )
    assert line["value"].to_list() == pytest.approx((0.58 * line["tokens"] ** 0.571).to_list())
    assert "your plan" in json.dumps(chart_spec(plot_laws(frame)))
    losses = iso_token_frame(grid)
    assert losses["panel"].n_unique() == 5 and losses["is_optimum"].sum() == 27
    assert "billion" in json.dumps(chart_spec(plot_iso_tokens(losses)))
