"""Set curves measured with batchscale beside two published ones, Figure 3d of the paper.

Run it as ``python figure_3d.py RECORDS… --out FIGURE.png``, with the records of the three ``mnist_fc_*.toml`` files or
the table of ours in ``mnist_fc_records``. It draws the figure and prints the tables of docs/reproduction.md.

Records of ``fc_1024_centred.toml``, one of the networks on other pixels, add a curve and a row.

``paper_figure_3d.csv`` has the published points, read off the figure: steps relative to those at batch size 2, and the
steps themselves, which follow from them (docs/reproduction.md says how).
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import altair as alt
import polars as pl

from batchscale import Goal, WorkloadName, read
from batchscale.analysis import (
    Analysis,
    AnalysisOptions,
    Baseline,
    add_effective_learning_rate,
    analyze,
    analyze_points,
    stored_goal,
)
from batchscale.figures import LIGHT, Drawn, Look, draw_panels, write_chart
from batchscale.figures.axes import log_axis, log_range, log_scale, size_axis
from batchscale.figures.kinds.curves import STEPS
from batchscale.figures.layout import Chart, PanelSize, inline
from batchscale.figures.theme import series_colours

NORMALISE_AT = 2
GOALS = (0.04, 0.035, 0.03)
GOAL_SIZES = (8, 32, 128, 512, 2048, 8192)
SIZE = PanelSize(330, 300)
MODELS = {"fc_128_128_128": "FC-128-128-128", "fc_1024": "FC-1024"}
VARIANTS = {
    "fc_1024": "measured, pixels 0 to 1",
    "fc_1024_centred": "measured, pixels -0.5 to 0.5",
}
VARIANT_SIZES = (2, 128, 512)
NORMALISED_STEPS = f"steps to result ÷ those at batch size {NORMALISE_AT}"
OPTIMIZERS = {"sgd": "SGD", "nesterov_momentum": "Nesterov momentum"}


def read_answers(paths: Sequence[Path], goal: Goal | None = None) -> dict[WorkloadName, Analysis]:
    """The analysis of every workload in the records, for a goal or else the one it was run for."""
    answers = {}
    for path in paths:
        records = read(path)
        for workload in records.workloads:
            wanted = goal or stored_goal(records, workload)
            if wanted is not None:
                answers[workload] = analyze(records, workload, wanted, AnalysisOptions(Baseline.FIRST))
    return answers


def read_published(model: str) -> pl.DataFrame:
    """The published points of a model, from batch size 2 on."""
    points = pl.read_csv(Path(__file__).with_name("paper_figure_3d.csv")).filter(pl.col("model") == model)
    return points.filter(pl.col("batch_size") >= NORMALISE_AT)


def measured_points(answer: Analysis, series: str, *, normalised: bool) -> pl.DataFrame:
    """The points of a curve with their intervals, divided by the steps at the smallest batch size if so wished."""
    curve = answer.curve.drop_nulls("steps").sort("batch_size")
    unit = float(curve["steps"][0]) if normalised else 1.0
    return curve.select(
        pl.lit(series).alias("series"),
        "batch_size",
        (pl.col("steps") / unit).alias("value"),
        (pl.col("steps_low") / unit).alias("low"),
        (pl.col("steps_high") / unit).alias("high"),
    )


def draw_panel(points: pl.DataFrame, look: Look) -> Drawn:
    """Curves with bars for their intervals; a curve without intervals (published) has hollow points and no line."""
    names = points["series"].unique(maintain_order=True).to_list()
    x_span, y_span = log_range(points["batch_size"]), log_range(points["value"], margin=0.8)
    x = alt.X(
        "batch_size:Q",
        scale=log_scale(x_span),
        axis=size_axis(x_span, points["batch_size"], look.size.width),
    )
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis(points["y_title"][0], y_span))
    legend = alt.Legend(title=None, orient="bottom", direction="vertical", offset=6, symbolType="stroke")
    scale = alt.Scale(domain=names, range=series_colours(LIGHT, len(names)))
    colour = alt.Color("series:N", sort=None, scale=scale, legend=legend)
    first = points.row(0, named=True)
    perfect = pl.DataFrame({"batch_size": [2.0**e for e in range(17)]}).with_columns(
        value=first["value"] * first["batch_size"] / pl.col("batch_size")
    )
    perfect = perfect.filter(pl.col("batch_size") >= first["batch_size"], pl.col("value") >= 2.0**y_span.low)
    ours, published = points.drop_nulls("low"), points.filter(pl.col("low").is_null())
    layers = [
        alt.Chart(inline(perfect)).mark_line(strokeDash=[5, 4], strokeWidth=1.1, color=LIGHT.muted).encode(x=x, y=y),
        alt.Chart(inline(ours)).mark_rule(strokeWidth=1.6).encode(x=x, y="low:Q", y2="high:Q", color=colour),
        alt.Chart(inline(ours)).mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour),
        alt.Chart(inline(ours)).mark_point(size=36, filled=True, opacity=1).encode(x=x, y=y, color=colour),
        alt.Chart(inline(published)).mark_point(size=60, strokeWidth=1.6).encode(x=x, y=y, color=colour),
    ]
    return Drawn(layers)


def titled(title: str, curves: Sequence[pl.DataFrame], y_title: str) -> pl.DataFrame:
    """The curves of a panel as one frame that names the panel."""
    return pl.concat(curves).with_columns(pl.lit(title).alias("panel"), pl.lit(y_title).alias("y_title"))


def draw(answers: dict[WorkloadName, Analysis]) -> Chart:
    """A panel per model beside the published points, and one per model that two optimizers trained."""
    panels = []
    for model, label in MODELS.items():
        answer = answers.get(WorkloadName("mnist", model, "sgd"))
        if answer is not None:
            published = read_published(model).select(
                pl.lit("published").alias("series"),
                "batch_size",
                pl.col("normalised_steps").alias("value"),
                pl.lit(None, pl.Float64).alias("low"),
                pl.lit(None, pl.Float64).alias("high"),
            )
            series = [measured_points(answer, "measured", normalised=True), published]
            other = answers.get(WorkloadName("mnist", f"{model}_centred", "sgd"))
            if other is not None:
                series.append(measured_points(other, VARIANTS[f"{model}_centred"], normalised=True))
            panels.append(titled(f"{label}, SGD", series, NORMALISED_STEPS))
    for model, label in MODELS.items():
        names = [WorkloadName("mnist", model, optimizer) for optimizer in OPTIMIZERS]
        if all(name in answers for name in names):
            curves = [measured_points(answers[name], OPTIMIZERS[name.optimizer], normalised=False) for name in names]
            panels.append(titled(f"{label}, two optimizers", curves, STEPS))
    return draw_panels(pl.concat(panels), draw_panel, Look(size=SIZE), of="curves")


def ratio_table(answer: Analysis, model: str) -> Iterator[str]:
    """Steps at every batch size, and their ratio to those at batch size 2 beside the published ratio."""
    yield "| batch size | steps | 90 % interval | published steps | log2 of the ratio | published | difference |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    published = dict(read_published(model).select("batch_size", "steps").rows())
    curve = answer.curve.drop_nulls("steps").sort("batch_size")
    unit = curve["steps"][0]
    for row in curve.to_dicts():
        theirs = published[row["batch_size"]]
        ratio, published_ratio = math.log2(row["steps"] / unit), math.log2(theirs / published[NORMALISE_AT])
        interval = f"{row['steps_low']:,.0f} to {row['steps_high']:,.0f}" if row["steps_low"] else "–"
        yield (
            f"| {row['batch_size']:,} | {row['steps']:,} | {interval} | {theirs:,} | {ratio:.2f} | "
            f"{published_ratio:.2f} | {ratio - published_ratio:+.2f} |"
        )


def variant_table(answers: dict[WorkloadName, Analysis]) -> Iterator[str]:
    """The steps of one network on other pixels, and their ratios, beside the published ones."""
    sizes = "".join(f" steps at {size} |" for size in VARIANT_SIZES)
    ratios = "".join(f" log2 of the ratio at {size} |" for size in VARIANT_SIZES[1:])
    yield f"| FC-1024 |{sizes}{ratios}"
    yield "|---|" + "---:|" * (2 * len(VARIANT_SIZES) - 1)
    rows = {
        label: dict(answers[WorkloadName("mnist", model, "sgd")].curve.select("batch_size", "steps").rows())
        for model, label in VARIANTS.items()
        if WorkloadName("mnist", model, "sgd") in answers
    }
    rows["published"] = dict(read_published("fc_1024").select("batch_size", "steps").rows())
    for label, steps in rows.items():
        counts = "".join(f" {steps[size]:,} |" for size in VARIANT_SIZES)
        logs = "".join(f" {math.log2(steps[size] / steps[NORMALISE_AT]):.2f} |" for size in VARIANT_SIZES[1:])
        yield f"| {label} |{counts}{logs}"


def goal_table(paths: Sequence[Path]) -> Iterator[str]:
    """How the ratios of the SGD curves depend on the goal: a race to a goal also measures the easier ones."""
    yield "| curve | goal | " + " | ".join(f"{size:,}" for size in GOAL_SIZES) + " |"
    yield "|---|---:|" + "---:|" * len(GOAL_SIZES)
    for error in GOALS:
        for workload, answer in read_answers(paths, Goal("val/classification_error", error)).items():
            if workload.optimizer == "sgd" and workload.model in MODELS:
                steps = dict(answer.curve.select("batch_size", "steps").rows())
                ratios = [f"{math.log2(steps[size] / steps[NORMALISE_AT]):.2f}" for size in GOAL_SIZES]
                yield f"| {workload} | {error} | " + " | ".join(ratios) + " |"


def regime_table(answers: dict[WorkloadName, Analysis]) -> Iterator[str]:
    """Where perfect scaling ends and where more batch stops helping, measured and published."""
    yield "| curve | perfect scaling up to | useful up to | B_crit |"
    yield "|---|---:|---:|---:|"
    for workload, answer in _of_the_figure(answers):
        yield regime_row(f"{workload}, measured", answer)
        if workload.optimizer == "sgd":
            sizes = answer.curve["batch_size"].to_list()
            points = read_published(workload.model)
            options = AnalysisOptions(Baseline.FIRST)
            same = analyze_points(points.filter(pl.col("batch_size").is_in(sizes)), options)
            yield regime_row(f"{workload}, published, at our batch sizes", same)
            yield regime_row(f"{workload}, published, all points", analyze_points(points, options))


def _of_the_figure(answers: dict[WorkloadName, Analysis]) -> list[tuple[WorkloadName, Analysis]]:
    return [(workload, answer) for workload, answer in answers.items() if workload.model in MODELS]


def regime_row(name: str, answer: Analysis) -> str:
    """A row of the table of regimes."""
    summary = answer.summary
    if summary is None:
        return f"| {name} | – | – | – |"
    regimes = summary.regimes
    useful = f"{regimes.max_useful_batch_size:,}" + ("" if regimes.max_useful_reached else " at least")
    critical = f"{summary.fit.b_crit:,.0f}" if summary.fit else "–"
    return f"| {name} | {regimes.perfect_end:,} | {useful} | {critical} |"


def rate_table(answers: dict[WorkloadName, Analysis]) -> Iterator[str]:
    """The winners' effective learning rates, and what each heuristic makes of the one at the smallest batch size."""
    yield "| curve | batch size | best rate | linear | square root |"
    yield "|---|---:|---:|---:|---:|"
    for workload, answer in _of_the_figure(answers):
        rated = add_effective_learning_rate(answer.curve.drop_nulls("steps").sort("batch_size"))
        sizes, rates = rated["batch_size"].to_list(), rated["effective_learning_rate"].to_list()
        for size, rate in zip(sizes, rates, strict=True):
            growth = size / sizes[0]
            yield f"| {workload} | {size:,} | {rate:.3g} | {rates[0] * growth:.3g} | {rates[0] * growth**0.5:.3g} |"


def main() -> None:
    """Draw the figure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="a .png, .svg, .pdf or .html file")
    given = parser.parse_args()
    answers = read_answers(given.records)
    for model in MODELS:
        answer = answers.get(WorkloadName("mnist", model, "sgd"))
        if answer is not None:
            print(f"\nmnist/{model}/sgd\n", *ratio_table(answer, model), sep="\n")
    print("", *goal_table(given.records), "", *regime_table(answers), sep="\n")
    print("", *rate_table(answers), "", *variant_table(answers), sep="\n")
    if given.out:
        write_chart(draw(answers), given.out)


if __name__ == "__main__":
    main()
