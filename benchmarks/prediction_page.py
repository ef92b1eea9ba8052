"""The tables and the figure of docs/prediction.md, made from the kept tables of ``prediction.py``."""

import math
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl

from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.export import write_chart
from batchscale.figures.layout import Chart, Drawn, Look, PanelSize, draw_panels, inline
from batchscale.figures.theme import LIGHT, series_colours
from batchscale.formatting import percent_text, rounded_text, span_text

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "prediction.md"
FIGURE = ROOT / "docs" / "pictures" / "prediction.png"
MEASURED = Path(__file__).parent / "prediction_measured.csv"
PREDICTED = Path(__file__).parent / "prediction_predicted.csv"
MEASURED_SCHEMA = {
    "case": pl.String, "workload": pl.String, "goal": pl.String, "source": pl.String, "b_crit": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "trial_steps": pl.Int64, "examples": pl.Int64,
}  # fmt: skip
PREDICTED_SCHEMA = {
    "case": pl.String, "method": pl.String, "b_crit": pl.Float64, "low": pl.Float64, "high": pl.Float64,
    "trial_steps": pl.Int64, "examples": pl.Int64, "reason": pl.String,
}  # fmt: skip
HELD_OUT = "held_out_"  # begins the names of cases that were chosen after all rules were fixed
BAND = 2.0  # a prediction within this factor is close
SIZE = PanelSize(460, 380)


def read_kept() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the kept tables: what was measured, and what was predicted."""
    return pl.read_csv(MEASURED, schema=MEASURED_SCHEMA), pl.read_csv(PREDICTED, schema=PREDICTED_SCHEMA)


def write_page(measured: pl.DataFrame, predicted: pl.DataFrame) -> None:
    """Replace the parts of the page between their marks, and draw the figure."""
    joined = join(measured, predicted)
    parts = {"cases": case_table(measured), "predictions": prediction_table(joined), "methods": method_table(joined)}
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        begin, end = f"<!-- {name}, written by prediction.py -->\n", f"<!-- end of {name} -->"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise SystemExit(f"{PAGE} must have the marks {begin.strip()} and {end}.")
        text = before + begin + "\n".join(lines) + "\n" + end + after
    PAGE.write_text(text, encoding="utf-8")
    write_chart(draw(joined), FIGURE)


def join(measured: pl.DataFrame, predicted: pl.DataFrame) -> pl.DataFrame:
    """Return the predictions with the measured size, the error factor, the share of its cost, and if intervals overlap.

    ``overlaps`` is null for a prediction without a value or without an interval.
    """
    joined = predicted.join(measured, on="case", suffix="_measured", maintain_order="left")
    ratio = pl.col("b_crit") / pl.col("b_crit_measured")
    low, high = pl.col("low").fill_null(0), pl.col("high").fill_null(math.inf)
    overlaps = (low <= pl.col("high_measured").fill_null(math.inf)) & (high >= pl.col("low_measured").fill_null(0))
    bounded = pl.col("b_crit").is_not_null() & (pl.col("low").is_not_null() | pl.col("high").is_not_null())
    return joined.with_columns(
        pl.max_horizontal(ratio, 1 / ratio).alias("factor"),
        (pl.col("trial_steps") / pl.col("trial_steps_measured")).alias("cost"),
        pl.when(bounded).then(overlaps).alias("overlaps"),
    )


def case_table(measured: pl.DataFrame) -> Iterator[str]:
    """Yield the table of the measured cases."""
    yield "| case | workload | goal | B_crit, 90 % interval | trial-steps | from |"
    yield "|---|---|---|---:|---:|---|"
    for row in measured.iter_rows(named=True):
        goal = row["goal"].replace("<", "&lt;")
        size = f"{rounded_text(row['b_crit'], 2)} ({span_text(row['low'], row['high'], _two) or 'exact'})"
        if row["b_crit"] is None:
            size = "none"
        yield f"| {row['case']} | {row['workload']} | {goal} | {size} | {row['trial_steps']:,} | {row['source']} |"


def prediction_table(joined: pl.DataFrame) -> Iterator[str]:
    """Yield the table of all predictions: value with interval, error factor, cost."""
    yield "| case | measured | method | predicted | error factor | intervals overlap | cost |"
    yield "|---|---:|---|---:|---:|---|---:|"
    for row in joined.iter_rows(named=True):
        measured = rounded_text(row["b_crit_measured"], 2)
        cost = "0" if not row["trial_steps"] else percent_text(row["cost"])
        if row["b_crit"] is None:
            interval = span_text(row["low"], row["high"], _two)
            text = f"not resolved{f', {interval}' if interval else ''}"
            yield f"| {row['case']} | {measured} | {row['method']} | {text} | | | {cost} |"
            continue
        interval = span_text(row["low"], row["high"], _two)
        value = f"{rounded_text(row['b_crit'], 2)}{f' ({interval})' if interval else ''}"
        factor = "" if row["factor"] is None else f"{row['factor']:.1f}"
        overlaps = {True: "yes", False: "no", None: "no interval"}[row["overlaps"]]
        yield f"| {row['case']} | {measured} | {row['method']} | {value} | {factor} | {overlaps} | {cost} |"


def method_table(joined: pl.DataFrame) -> Iterator[str]:
    """Yield the table of methods: how often each predicts, how close, at which cost, and the factors held out."""
    yield (
        "| method | cases | resolved | within factor 2 | median factor | worst | intervals overlap | median cost | "
        "factors of held-out cases |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---|"
    for (method,), rows in joined.group_by("method", maintain_order=True):
        known = rows.filter(pl.col("factor").is_not_null())
        close = known.filter(pl.col("factor") <= BAND)
        median, worst = known["factor"].median(), known["factor"].max()
        bounded = known["overlaps"].count()
        held_out = rows.filter(pl.col("case").str.starts_with(HELD_OUT))["factor"]
        cells = [
            method,
            len(rows),
            int(rows["b_crit"].is_not_null().sum()),
            len(close),
            "" if median is None else f"{median:.1f}",
            "" if worst is None else f"{worst:.1f}",
            f"{known['overlaps'].sum()} of {bounded}" if bounded else "no interval",
            percent_text(float(np.median(rows["cost"].drop_nulls()))),
            ", ".join("none" if factor is None else f"{factor:.1f}" for factor in held_out),
        ]
        yield f"| {' | '.join(map(str, cells))} |"


def draw(joined: pl.DataFrame) -> Chart:
    """Draw predicted against measured, with a band of a factor of 2."""
    points = joined.filter(pl.col("b_crit").is_not_null() & pl.col("b_crit_measured").is_not_null())
    return draw_panels(points.drop("goal").with_columns(pl.lit("").alias("panel")), _panel, Look(size=SIZE), of="cases")


def _panel(points: pl.DataFrame, _: Look) -> Drawn:
    names = points["method"].unique(maintain_order=True).to_list()
    span = log_range([*points["b_crit"], *points["b_crit_measured"]], margin=0.5)
    low, high = span.domain
    line = pl.DataFrame({"x": [low, high], "y": [low, high], "above": [low * BAND, high * BAND]})
    line = line.with_columns((pl.col("y") / BAND).alias("below"))
    x = alt.X("b_crit_measured:Q", scale=log_scale(span), axis=log_axis("measured B_crit (examples)", span))
    y = alt.Y("b_crit:Q", scale=log_scale(span), axis=log_axis("predicted B_crit (examples)", span))
    scale = alt.Scale(domain=names, range=series_colours(LIGHT, len(names)))
    colour = alt.Color("method:N", sort=None, scale=scale, legend=alt.Legend(title=None, orient="right"))
    shape = alt.Shape(
        "method:N", sort=None, scale=alt.Scale(domain=names), legend=alt.Legend(title=None, orient="right")
    )
    band = alt.Chart(inline(line))
    chart = alt.Chart(inline(points))
    bounded = alt.Chart(inline(points.drop_nulls(["low", "high"])))
    at = alt.X("x:Q", scale=log_scale(span))
    return Drawn(
        [
            band.mark_area(opacity=0.12, color="#888888", clip=True).encode(x=at, y="below:Q", y2="above:Q"),
            band.mark_line(color="#888888", strokeDash=[4, 3], clip=True).encode(x=at, y="y:Q"),
            bounded.mark_rule(opacity=0.5, clip=True).encode(x=x, y="low:Q", y2="high:Q", color=colour),
            chart.mark_point(size=50, filled=True, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
        ]
    )


def _two(value: float) -> str:
    return rounded_text(value, 2)
