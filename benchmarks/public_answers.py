"""The answers for public curves, and every number and claim in their text checked against the points.

Reads the folder of public measurements that is given (``mlperf_rcp_runs.csv``: reference runs of MLPerf;
``zeus_summary_train.csv``: runs of Zeus; ``steplaw_runs.csv``: language models) and, beside it, ``paper_curves.csv``
(points of the paper's figures) and ``ddsp_training_runs.csv``. Every curve is answered twice where it has repeated
runs: from the mean of the runs, and from one row per run. ``answer_claims.py`` reads the text.

    python benchmarks/public_answers.py --data path/to/public_curves > answers.txt
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from answer_checks import Rows
from answer_claims import check_answer

from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.sentences import answer_sentences

FEWEST = 3
SEQUENCE = 2048  # tokens of a sequence in the runs of Step Law
SHARES = (0.3, 0.5, 0.7)  # of the way from the best loss of the smallest budget to that of the largest


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
    """One curve per data set, network and target; a run that did not reach it has no steps."""
    runs = pl.read_csv(path, infer_schema_length=None).with_columns(
        pl.col("target_epoch").cast(pl.Float64, strict=False).fill_nan(None)
    )
    keys = ["dataset", "network", "optimizer", "target_metric"]
    for key, rows in runs.group_by(keys, maintain_order=True):
        name = f"Zeus {'/'.join(map(str, key[:3]))} to {key[3]}"
        yield name, _steps(rows.select("batch_size", "target_epoch").rows())


def ddsp_curves(path: Path) -> Iterator[tuple[str, Rows]]:
    """The runs of the design document on distributed training, some of which failed."""
    runs = pl.read_csv(path, infer_schema_length=None)
    steps = pl.when("reached_goal").then("steps").cast(pl.Float64).alias("steps")
    yield "DDSP", runs.select("batch_size", steps).rows()


def step_law_curves(path: Path) -> Iterator[tuple[str, Rows]]:
    """Tokens to a loss for each model size, learning rate tuned anew at each batch size, between measured budgets."""
    runs = pl.read_csv(path).group_by("params", "tokens", "batch_sequences").agg(pl.col("loss").min())
    for (params,), rows in runs.sort("params", "tokens").group_by("params", maintain_order=True):
        best = rows.group_by("tokens").agg(pl.col("loss").min()).sort("tokens")["loss"]
        for share in SHARES:
            goal = best[0] + share * (best[-1] - best[0])
            points: Rows = []
            for (batch,), own in rows.group_by("batch_sequences", maintain_order=True):
                loss, tokens = own["loss"].to_numpy(), np.log(own["tokens"].to_numpy())
                if loss.min() <= goal <= loss.max() and (np.diff(loss) < 0).all():
                    size = int(batch) * SEQUENCE
                    points.append((size, math.exp(float(np.interp(-goal, -loss, tokens))) / size))
            yield f"StepLaw {params:,} to {goal:.3f}", points


def paper_curves(path: Path) -> Iterator[tuple[str, Rows]]:
    """Every series of the published figures that shows steps."""
    points = pl.read_csv(path, infer_schema_length=None).filter(pl.col("y_kind").str.contains("steps"))
    for key, rows in points.group_by("figure", "panel", "series", maintain_order=True):
        yield f"Paper {', '.join(map(str, key))}", rows.select("batch_size", "y").rows()


def means(rows: Rows) -> Rows:
    """One point per size: the mean of the runs that reached the goal; none where no run did."""
    groups = defaultdict(list)
    for size, steps in rows:
        groups[size] += [] if steps is None else [steps]
    return [(size, sum(values) / len(values) if values else None) for size, values in sorted(groups.items())]


def public_curves(data: Path) -> Iterator[tuple[str, Rows]]:
    """Return all curves of the folder and of the files beside it."""
    yield from mlperf_curves(data / "mlperf_rcp_runs.csv")
    yield from zeus_curves(data / "zeus_summary_train.csv")
    yield from step_law_curves(data / "steplaw_runs.csv")
    yield from paper_curves(data.parent / "paper_curves.csv")
    yield from ddsp_curves(data.parent / "ddsp_training_runs.csv")


def main() -> None:
    """Print every answer with what is wrong about it, and the number of wrong answers by kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of public measurements")
    answers: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for name, rows in public_curves(parser.parse_args().data):
        points = means(rows)
        if sum(steps is not None for _, steps in points) < FEWEST:
            continue
        for kind, some in (("means", points), ("runs", rows)):
            if kind == "runs" and len(rows) == len(points):
                continue
            answers[f"{name.split()[0]} {kind}"] += 1
            schema = {"batch_size": pl.Int64, "steps": pl.Float64}
            sentences = answer_sentences(analyze_points(pl.DataFrame(some, schema=schema, orient="row")))
            wrong = check_answer(sentences, some)
            false.update(text.partition(":")[0] for text in wrong)
            shown = ", ".join(f"{size:,}: {'failed' if steps is None else f'{steps:.4g}'}" for size, steps in points)
            print(f"{name} ({kind}): {shown}")
            for line in (*sentences, *(f"FALSE: {text}" for text in wrong)):
                print(f"    {line}")
    print(f"{answers.total()} answers: {', '.join(f'{key} {count}' for key, count in answers.items())}")
    print(f"{false.total()} false claims{''.join(f', {key} {count}' for key, count in false.items())}")
    raise SystemExit(1 if false else 0)


def _version(text: str) -> tuple[str, tuple[int, ...]]:
    kind, _, number = text.rpartition("_")
    return kind, tuple(int(part) for part in number.split("."))


def _steps(rows: list[tuple[int, float | None]]) -> Rows:
    """Passes over the data, or examples, as steps: up to a factor that no boundary depends on."""
    return [(int(size), None if count is None else float(count) / size * 1e6) for size, count in rows]


if __name__ == "__main__":
    main()
