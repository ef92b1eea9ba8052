"""The chart of examples to result: the frame against the points by hand, and what is drawn."""

import polars as pl
import pytest

from batchscale.analysis import analyze_points
from batchscale.figures.export import chart_spec
from batchscale.figures.kinds.examples import analysis_examples, plot_examples

SIZES = [2**i for i in range(10)]
LEFT = {size: 1e4 / size * (1 + size / 64 + 8 / size) for size in SIZES}  # fewest examples at sqrt(64 * 8)


def frame(points):
    schema = {"batch_size": pl.Int64, "steps": pl.Float64}
    return analysis_examples(analyze_points(pl.DataFrame(list(points.items()), schema=schema, orient="row")))


def marks(points):
    return [layer["mark"]["type"] for layer in chart_spec(plot_examples(frame(points)))["layer"]]


def test_examples_are_over_the_fewest_measured():
    rows = frame(LEFT)
    fewest = min(size * steps for size, steps in LEFT.items())
    assert rows["value"].to_list() == pytest.approx([size * steps / fewest for size, steps in LEFT.items()])
    assert rows["value"].min() == 1


def test_the_size_of_fewest_examples_is_a_line_and_the_cheap_sizes_are_shaded():
    row = frame(LEFT).row(0, named=True)
    assert row["b_opt"] == pytest.approx(512**0.5, rel=0.02)
    assert row["band_low"] < row["b_opt"] < row["band_high"]
    assert marks(LEFT).count("rule") >= 1
    assert "rect" in marks(LEFT)


def test_a_curve_whose_smallest_size_is_cheapest_has_no_line():
    hyperbola = {size: 1000 * (1 + 64 / size) for size in SIZES}
    assert frame(hyperbola)["b_opt"].null_count() == len(SIZES)


def test_failed_sizes_are_named():
    assert "not reached at batch size 1,024" in " ".join(frame(LEFT | {1024: None})["note"].drop_nulls())
