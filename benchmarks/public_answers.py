"""What is said about public curves, and whether each sentence holds against the curve's own numbers.

Reads the folder of public measurements that is given (``mlperf_rcp_runs.csv``: reference runs of MLPerf;
``zeus_summary_train.csv``: runs of Zeus) and, beside it, ``paper_curves.csv`` (points of the paper's figures). Every
curve is answered twice where it has repeated runs: from the mean of the runs, and from one row per run. The checks
read the text of the answer and know nothing of how it was made.

    python benchmarks/public_answers.py --data path/to/public_curves > answers.txt
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.sentences import answer_sentences

FEWEST = 3
ROUNDING = 1.01  # sentences give three digits
PROPORTION = r"From batch size ([\d,]+) to ([\d,]+)(?: \([^)]*\))? steps fall in proportion, to within (\d+) %"
Rows = list[tuple[int, float]]


def mlperf_curves(path: Path) -> Iterator[tuple[str, Rows]]:
    """One curve per benchmark and version that has three sizes, in units of examples or epochs over batch size."""
    runs = pl.read_csv(path, infer_schema_length=None)
    versions = sorted({*runs["first_version"], *runs["last_version"]}, key=_version)
    for (benchmark,), rows in runs.group_by("benchmark", maintain_order=True):
        for version in versions:
            standing = [
                (row["batch_size"], row["to_converge"])
                for row in rows.iter_rows(named=True)
                if _version(row["first_version"]) <= _version(version) <= _version(row["last_version"])
                and _version(row["first_version"])[0] == _version(version)[0]
            ]
            yield f"MLPerf {benchmark} {version}", _steps(standing)


def zeus_curves(path: Path) -> Iterator[tuple[str, Rows]]:
    """One curve per data set, network and target; runs that did not reach it are left out."""
    runs = pl.read_csv(path, infer_schema_length=None).with_columns(
        pl.col("target_epoch").cast(pl.Float64, strict=False)
    )
    keys = ["dataset", "network", "optimizer", "target_metric"]
    for key, rows in runs.group_by(keys, maintain_order=True):
        reached = rows.filter(pl.col("target_epoch").is_finite() & (pl.col("target_epoch") > 0))
        yield (
            f"Zeus {'/'.join(map(str, key[:3]))} to {key[3]}",
            _steps(reached.select("batch_size", "target_epoch").rows()),
        )


def paper_curves(path: Path) -> Iterator[tuple[str, Rows]]:
    """Every series of the published figures that shows steps."""
    points = pl.read_csv(path, infer_schema_length=None).filter(pl.col("y_kind").str.contains("steps"))
    for key, rows in points.group_by("figure", "panel", "series", maintain_order=True):
        yield f"Paper {', '.join(map(str, key))}", rows.select("batch_size", "y").rows()


def means(rows: Rows) -> Rows:
    """One point per size: the mean of its runs."""
    groups = defaultdict(list)
    for size, steps in rows:
        groups[size].append(steps)
    return [(size, sum(values) / len(values)) for size, values in sorted(groups.items())]


def check(sentences: tuple[str, ...], points: dict[int, float]) -> list[str]:
    """What the sentences say that the points do not."""
    text = " ".join(sentences)
    examples = {size: size * steps for size, steps in points.items()}
    fewest, least, largest = min(examples.values()), min(points.values()), max(points)
    wrong = []
    proportion = re.search(PROPORTION, text)
    if proportion:
        start, end, tolerance = (int(part.replace(",", "")) for part in proportion.groups())
        for size, count in examples.items():
            if start <= size <= end and count > fewest * (1 + tolerance / 100) * ROUNDING:
                wrong.append(f"'in proportion' at {size}, which takes {count / fewest:.2f} times the examples")
    for size, ratio in re.findall(r"(?:at|size,) ([\d,]+),? (?:it takes )?([\d.,]+) (?:\([^)]*\) )?times", text):
        own = examples[int(size.replace(",", ""))] / fewest
        if not 1 / ROUNDING <= float(ratio.replace(",", "")) / own <= ROUNDING:
            wrong.append(f"'{ratio} times' at {size}, which takes {own:.3f}")
    level = re.search(r"At batch size ([\d,]+)(?: \([^)]*\))? steps are within (\d+) %", text)
    if level:
        size, share = (int(part.replace(",", "")) for part in level.groups())
        if points[size] > least * (1 + share / 100) * ROUNDING:
            wrong.append(f"'within {share} %' at {size}, which takes {points[size] / least:.2f} times the fewest steps")
        if proportion and end > max(size, start):
            wrong.append(f"in proportion up to {end}, and levelled from {size} on")
    falls = "Steps still fell" in text
    if falls and level:
        wrong.append("steps both fall and have levelled")
    if falls and points[largest] > least * ROUNDING:
        wrong.append("'still fell' though a smaller size needs fewer steps")
    if "no extra computation" in text or "costs no" in text:
        wrong.append("a promise without a number")
    for value, low, high in re.findall(r"about ([\d.,]+) \(([\d.,]+) to ([\d.,]+)\)", text):
        numbers = [float(part.replace(",", "").rstrip(".")) for part in (low, value, high)]
        if numbers != sorted(numbers):
            wrong.append(f"{value} outside of its own interval, {low} to {high}")
    critical = re.search(r"critical batch size, where the curve bends, is about [\d.,]+ \(([\d.,]+) to", text)
    if critical and level and float(critical.group(1).replace(",", "")) > 4 * size:
        wrong.append("levelled well before the bend")
    return wrong


def main() -> None:
    """Print every answer with what is wrong about it, and how many are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of public measurements")
    data = parser.parse_args().data
    found = [*mlperf_curves(data / "mlperf_rcp_runs.csv"), *zeus_curves(data / "zeus_summary_train.csv")]
    if (data.parent / "paper_curves.csv").is_file():
        found += paper_curves(data.parent / "paper_curves.csv")
    counts: dict[str, int] = defaultdict(int)
    for name, rows in found:
        one = means(rows)
        if len(one) < FEWEST:
            continue
        for kind, some in (("means", one), ("runs", rows)):
            if kind == "runs" and len(rows) == len(one):
                continue
            counts[f"{name.split()[0]} {kind}"] += 1
            answer = analyze_points(
                pl.DataFrame(some, schema={"batch_size": pl.Int64, "steps": pl.Float64}, orient="row")
            )
            sentences = answer_sentences(answer)
            wrong = check(sentences, dict(answer.curve.select("batch_size", "steps").rows()))
            counts["wrong"] += bool(wrong)
            print(f"{name} ({kind}): {', '.join(f'{size:,}: {steps:.4g}' for size, steps in one)}")
            for line in (*sentences, *(f"WRONG: {text}" for text in wrong)):
                print(f"    {line}")
    print(", ".join(f"{key}: {count}" for key, count in counts.items()))
    raise SystemExit(1 if counts["wrong"] else 0)


def _version(text: str) -> tuple[str, tuple[int, ...]]:
    kind, _, number = text.rpartition("_")
    return kind, tuple(int(part) for part in number.split("."))


def _steps(rows: list[tuple[int, float]]) -> Rows:
    """Passes over the data, or examples, as steps: up to a factor that no boundary depends on."""
    return [(int(size), float(count) / size * 1e6) for size, count in rows]


if __name__ == "__main__":
    main()
