"""Set a curve measured with batchscale beside a published one, the first panel of Figure 1 of the paper.

Run it as ``python figure_1a.py RECORDS --out FIGURE.png``, with the records of ``mnist_simple_cnn.toml`` or the table
of ours in ``mnist_cnn_records``. It draws the figure and prints the tables of docs/reproduction.md.

``paper_figure_1.csv`` has the published points, in steps.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from batchscale import WorkloadName
from batchscale.analysis import Analysis, AnalysisOptions, Baseline, add_effective_learning_rate, analyze_points
from batchscale.figures import Look, draw_panels, write_chart
from batchscale.figures.kinds.curves import STEPS
from batchscale.figures.layout import Chart

sys.path.insert(0, str(Path(__file__).parent))
from figure_3d import SIZE, draw_panel, measured_points, read_answers, regime_row, titled

WORKLOAD = WorkloadName("mnist", "simple_cnn_base", "nesterov_momentum")


def read_published() -> pl.DataFrame:
    """The published points from batch size 2 on, rounded to whole steps."""
    points = pl.read_csv(Path(__file__).with_name("paper_figure_1.csv"))
    points = points.filter(pl.col("dataset") == WORKLOAD.dataset, pl.col("model") == WORKLOAD.model)
    points = points.filter(pl.col("batch_size") >= 2)
    return points.select("batch_size", pl.col("steps").round().cast(pl.Int64)).sort("batch_size")


def step_table(answer: Analysis) -> Iterator[str]:
    """Steps at every batch size beside the published ones, and both relative to those at the smallest size."""
    yield (
        "| batch size | steps | 90 % interval | published steps | ours ÷ published | log2 of the ratio | published | "
        "difference |"
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    published = dict(read_published().rows())
    curve = answer.curve.drop_nulls("steps").sort("batch_size")
    first = curve.row(0, named=True)
    for row in curve.to_dicts():
        steps, theirs = row["steps"], published[row["batch_size"]]
        ratio = math.log2(steps / first["steps"])
        published_ratio = math.log2(theirs / published[first["batch_size"]])
        interval = f"{row['steps_low']:,.0f} to {row['steps_high']:,.0f}" if row["steps_low"] else "–"
        yield (
            f"| {row['batch_size']:,} | {steps:,} | {interval} | {theirs:,} | {steps / theirs:.2f} | {ratio:.2f} | "
            f"{published_ratio:.2f} | {ratio - published_ratio:+.2f} |"
        )


def regime_table(answer: Analysis) -> Iterator[str]:
    """Where perfect scaling ends and where more batch stops helping, measured and published."""
    yield "| curve | perfect scaling up to | useful up to | B_crit |"
    yield "|---|---:|---:|---:|"
    points, options = read_published(), AnalysisOptions(Baseline.FIRST)
    same = points.filter(pl.col("batch_size").is_in(answer.curve["batch_size"].to_list()))
    yield regime_row("Simple CNN, measured", answer)
    yield regime_row("Simple CNN, published, at our batch sizes", analyze_points(same, options))
    yield regime_row("Simple CNN, published, all points", analyze_points(points, options))


def rate_table(answer: Analysis) -> Iterator[str]:
    """The metaparameters of the winners."""
    yield "| batch size | best learning rate | momentum | effective rate |"
    yield "|---:|---:|---:|---:|"
    rated = add_effective_learning_rate(answer.curve.drop_nulls("steps").sort("batch_size"))
    for row in rated.to_dicts():
        rate, effective = row["learning_rate"], row["effective_learning_rate"]
        yield f"| {row['batch_size']:,} | {rate:.3g} | {row['momentum']:.3f} | {effective:.3g} |"


def draw(answer: Analysis) -> Chart:
    """The measured curve with its intervals, and the published points."""
    published = read_published().select(
        pl.lit("published").alias("series"),
        "batch_size",
        pl.col("steps").cast(pl.Float64).alias("value"),
        pl.lit(None, pl.Float64).alias("low"),
        pl.lit(None, pl.Float64).alias("high"),
    )
    measured = measured_points(answer, "measured", normalised=False)
    panel = titled("Simple CNN on MNIST, Nesterov momentum", [measured, published], STEPS)
    return draw_panels(panel, draw_panel, Look(size=SIZE), of="curves")


def main() -> None:
    """Draw the figure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", type=Path)
    parser.add_argument("--out", type=Path, help="a .png, .svg, .pdf or .html file")
    given = parser.parse_args()
    answer = read_answers([given.records])[WORKLOAD]
    print(*step_table(answer), "", *regime_table(answer), "", *rate_table(answer), sep="\n")
    if given.out:
        write_chart(draw(answer), given.out)


if __name__ == "__main__":
    main()
