"""The best learning rates of several curves in one panel."""

import json

import polars as pl
from made_records import GOAL, WORKLOAD, simulated

from batchscale.figures.export import chart_spec
from batchscale.figures.kinds.metaparameter import DASHED_RATES, metaparameter_frame, plot_rates
from batchscale.figures.series import CurvePanel, Series


def rates(label: str, **law: object) -> pl.DataFrame:
    records = simulated((1, 4, 16, 64), **law)
    panel = CurvePanel("Best learning rates", (Series(WORKLOAD, GOAL, label),))
    return metaparameter_frame(records, [panel], "learning_rate").with_columns(pl.lit(label).alias("series"))


def test_every_curve_is_a_line_of_its_own_with_what_linear_scaling_says():
    frame = pl.concat([rates("one"), rates("two", seed=1)])
    spec = chart_spec(plot_rates(frame))
    drawn = json.dumps(spec)
    assert DASHED_RATES in drawn and '"domain": ["one", "two"]' in drawn
    lines = [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert len(lines) == 2
    ends = pl.DataFrame(spec["datasets"][lines[0]["data"]["name"]]).sort("series", "batch_size")
    for name, part in ends.group_by("series"):
        first = (
            frame.filter((pl.col("series") == name[0]) & pl.col("value").is_not_null())
            .sort("batch_size")
            .row(0, named=True)
        )
        slopes = (part["value"] / part["batch_size"]).to_list()
        assert all(abs(slope * first["batch_size"] / first["value"] - 1) < 1e-9 for slope in slopes)


def test_rates_that_are_missing_are_said():
    nothing = rates("one").with_columns(pl.lit(None, dtype=pl.Float64).alias("value"), pl.lit("no rate").alias("note"))
    assert "no rate" in json.dumps(chart_spec(plot_rates(nothing)))
