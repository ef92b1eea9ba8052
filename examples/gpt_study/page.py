"""The tables and the figure of docs/studies/optimal-batch-size.md, from the records of the study's four arms.

Run it as ``python page.py``: it reads the tables in ``records`` beside this file, draws the figure, and writes the
tables into the page between their marks. ``python page.py RUNS`` first imports the records of finished runs (a folder
per arm, as ``make study-gpt`` makes them) into these tables.
"""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from batchscale import read
from batchscale.analysis import Analysis, AnalysisOptions, Baseline, analyze, stored_goal
from batchscale.analysis.as_json import analysis_json
from batchscale.errors import AnalysisError
from batchscale.figures import LIGHT, Drawn, Look, draw_panels, write_chart
from batchscale.figures.axes import log_axis, log_range, log_scale
from batchscale.figures.layout import Chart, PanelSize, inline
from batchscale.figures.theme import series_colours

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE, FIGURE = ROOT / "docs/studies/optimal-batch-size.md", ROOT / "docs/pictures/optimal-batch-size.png"
TOKENS = 64  # of a sequence
ARMS = {
    "adamw_rate": "AdamW: learning rate",
    "adamw_rate_beta2": "AdamW: learning rate, β2",
    "adamw_all": "AdamW: learning rate, β1, β2, decay, warm-up",
    "muon_all": "Muon: learning rate, momentum, β2, decay, warm-up",
}
FAMILIES = {
    "hyperbola": "hyperbola",
    "sharp": "hyperbola with a sharp bend",
    "left_branch": "hyperbola with a left branch",
    "iso_loss": "curve of equal loss",
    "power": "power law",
}
SIZE = PanelSize(520, 340)


def read_answers(folder: Path = HERE / "records") -> dict[str, Analysis]:
    """The analysis of every arm that has records, in the order of the arms."""
    answers = {}
    for arm in ARMS:
        if (folder / arm).is_dir():
            records = read(folder / arm)
            (workload,) = records.workloads
            goal = stored_goal(records, workload)
            with contextlib.suppress(AnalysisError):  # nothing is finished yet
                if goal is not None:
                    answers[arm] = analyze(records, workload, goal, AnalysisOptions(Baseline.ROBUST))
    return answers


def answer_table(answers: Mapping[str, Analysis]) -> Iterator[str]:
    """B_opt, the critical batch size and the families that are not rejected, in tokens."""
    yield "| arm | fewest tokens to the goal | at a batch of | B_opt, 90 % interval | critical batch size | family |"
    yield "|---|---:|---:|---|---:|---|"
    for arm, answer in answers.items():
        scaling = analysis_json(answer)["scaling"]
        curve = answer.curve.drop_nulls("steps").with_columns(tokens=TOKENS * pl.col("steps") * pl.col("batch_size"))
        best = curve.sort("tokens").row(0, named=True)
        yield (
            f"| {ARMS[arm]} | {best['tokens']:,} | {TOKENS * best['batch_size']:,} tokens | {_optimum(scaling)} | "
            f"{_span(scaling, 'b_crit')} | {FAMILIES.get(scaling['family'], '–')} |"
        )


def evidence_table(answers: Mapping[str, Analysis]) -> Iterator[str]:
    """How far the AICc of each family lies above that of the best one."""
    yield "| arm | " + " | ".join(FAMILIES.values()) + " |"
    yield "|---|" + "---:|" * len(FAMILIES)
    for arm, answer in answers.items():
        values = {fit["family"]: fit["aicc"] for fit in analysis_json(answer)["scaling"]["families"]}
        least = min((value for value in values.values() if value is not None), default=None)
        cells = (values.get(family) for family in FAMILIES)
        yield f"| {ARMS[arm]} | " + " | ".join("–" if v is None else f"{v - least:.1f}" for v in cells) + " |"


def token_table(answers: Mapping[str, Analysis]) -> Iterator[str]:
    """Tokens to the goal at every batch size: confirmed by new seeds, and in brackets the best trial of the search."""
    sizes = sorted({size for answer in answers.values() for size in answer.curve["batch_size"]})
    yield "| batch size, tokens | sequences | " + " | ".join(ARMS[arm] for arm in answers) + " |"
    yield "|---:|---:|" + "---:|" * len(answers)
    rows = {arm: {row["batch_size"]: row for row in answer.curve.to_dicts()} for arm, answer in answers.items()}
    for size in sizes:
        cells = (_tokens(rows[arm].get(size), size) for arm in answers)
        yield f"| {TOKENS * size:,} | {size} | " + " | ".join(cells) + " |"


def winner_table(arm: str, answer: Analysis) -> Iterator[str]:
    """The metaparameters of the best trial at every batch size, and how many trials reached the goal."""
    rows = [row for row in analysis_json(answer)["curve"] if row["metaparameters"]]
    names = list(rows[0]["metaparameters"]) if rows else []
    yield f"| {ARMS[arm].partition(':')[0]}, batch size, tokens | reached the goal | " + " | ".join(names) + " |"
    yield "|---:|---:|" + "---:|" * len(names)
    for row in rows:
        cells = " | ".join(f"{row['metaparameters'][name]:.3g}" for name in names)
        yield f"| {TOKENS * row['batch_size']:,} | {row['reached']} of {row['trials']} | {cells} |"


def doubt_list(answers: Mapping[str, Analysis]) -> Iterator[str]:
    """The reasons to trust each curve less, as the analysis gives them."""
    for arm, answer in answers.items():
        doubts = "; ".join(answer.doubts) or "none"
        yield f"- {ARMS[arm]}: {doubts}."


def _optimum(scaling: Mapping[str, Any]) -> str:
    if scaling["b_opt"] is not None:
        return _span(scaling, "b_opt")
    high = scaling["b_opt_high"]
    return "none within the sizes" + ("" if high is None else f"; below {TOKENS * high:,.0f} tokens")


def _span(values: Mapping[str, Any], name: str) -> str:
    value, low, high = (values[key] for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return "–"
    ends = [f"{TOKENS * end:,.0f}" if end is not None else "?" for end in (low, high)]
    return f"{TOKENS * value:,.0f} ({ends[0]} to {ends[1]}) tokens"


def _tokens(row: Mapping[str, Any] | None, size: int) -> str:
    if row is None or row["steps"] is None:
        return "–"
    searched = row.get("search_steps")
    text = f"{TOKENS * size * row['steps']:,.0f}"
    return text if searched in (None, row["steps"]) else f"{text} ({TOKENS * size * searched:,.0f})"


def draw(answers: Mapping[str, Analysis]) -> Chart:
    """Tokens to the goal against the batch size in tokens, a line per arm with bars for the intervals."""
    frames = [
        answer.curve.drop_nulls("steps").select(
            pl.lit("Tokens to a loss of 2.1 nats per byte").alias("panel"),
            pl.lit(ARMS[arm]).alias("series"),
            (TOKENS * pl.col("batch_size")).alias("batch_tokens"),
            *(
                (TOKENS * pl.col("batch_size") * pl.col(column)).cast(pl.Float64).alias(name)
                for column, name in (("steps", "value"), ("steps_low", "low"), ("steps_high", "high"))
            ),
        )
        for arm, answer in answers.items()
    ]
    return draw_panels(pl.concat(frames), _panel, Look(size=SIZE), of="arms")


def _panel(points: pl.DataFrame, _: Look) -> Drawn:
    names = points["series"].unique(maintain_order=True).to_list()
    x_span, y_span = (
        log_range(points["batch_tokens"]),
        log_range([*points["low"].drop_nulls(), *points["value"], *points["high"].drop_nulls()], margin=0.3),
    )
    axis = alt.Axis(title="batch size (tokens)", values=sorted(set(points["batch_tokens"])), format=",")
    x = alt.X("batch_tokens:Q", scale=log_scale(x_span), axis=axis)
    y = alt.Y("value:Q", scale=log_scale(y_span), axis=log_axis("tokens to the goal", y_span))
    legend = alt.Legend(
        title=None, orient="bottom", direction="vertical", offset=6, symbolType="stroke", labelLimit=500
    )
    scale = alt.Scale(domain=names, range=series_colours(LIGHT, len(names)))
    colour = alt.Color("series:N", sort=None, scale=scale, legend=legend)
    with_interval = alt.Chart(inline(points.drop_nulls("low")))
    chart = alt.Chart(inline(points))
    return Drawn(
        [
            with_interval.mark_rule(strokeWidth=1.4, opacity=0.6).encode(x=x, y="low:Q", y2="high:Q", color=colour),
            chart.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour),
            chart.mark_point(size=36, filled=True, opacity=1).encode(x=x, y=y, color=colour),
        ]
    )


def write_page(answers: Mapping[str, Analysis]) -> None:
    """Replace the parts of the page between their marks."""
    parts = {
        "answers": answer_table(answers),
        "evidence": evidence_table(answers),
        "tokens": token_table(answers),
        "doubts": doubt_list(answers),
        "winners": (line for arm, answer in answers.items() for line in (*winner_table(arm, answer), "")),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        begin, end = f"<!-- {name}, written by page.py -->\n", f"<!-- end of {name} -->"
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise SystemExit(f"{PAGE} must have the marks {begin.strip()} and {end}.")
        text = before + begin + "\n".join(lines).rstrip() + "\n" + end + after
    PAGE.write_text(text, encoding="utf-8")


def keep(runs: Path) -> None:
    """Import the records of runs into the tables beside this file, replacing those of the same arm."""
    (HERE / "records").mkdir(exist_ok=True)
    for arm in ARMS:
        if (runs / arm).is_dir():
            table = HERE / "records" / arm
            options = ["--out", str(table), "--overwrite"]
            subprocess.run([sys.executable, "-m", "batchscale", "import", str(runs / arm), *options], check=True)


def main() -> None:
    """Import runs if they are given, then write figure and tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="?", type=Path, help="a folder with the records of each arm")
    given = parser.parse_args()
    if given.runs:
        keep(given.runs)
    answers = read_answers()
    write_page(answers)
    write_chart(draw(answers), FIGURE)


if __name__ == "__main__":
    main()
