"""The answers for public curves, and every number and claim in their text checked against the points.

Reads the folder of public measurements that is given, as ``scripts/make_atlas.py`` does: runs of MLPerf, Zeus and of
language models, and beside it the points of the paper's figures and the runs of DDSP. Every curve is answered twice
where it has repeated runs: from the mean of the runs, and from one row per run. ``answer_claims.py`` reads the text.

    python benchmarks/public_answers.py --data path/to/public_curves > answers.txt
"""

import argparse
from collections import Counter, defaultdict
from pathlib import Path

import polars as pl
from answer_checks import Rows
from answer_claims import check_answer

from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.sentences import answer_sentences
from batchscale.atlas.public_files import public_curves

FEWEST = 3


def means(rows: Rows) -> Rows:
    """One point per size: the mean of the runs that reached the goal; none where no run did."""
    groups = defaultdict(list)
    for size, steps in rows:
        groups[size] += [] if steps is None else [steps]
    return [(size, sum(values) / len(values) if values else None) for size, values in sorted(groups.items())]


def main() -> None:
    """Print every answer with what is wrong about it, and the number of wrong answers by kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of public measurements")
    answers: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for curve in public_curves(parser.parse_args().data):
        name = f"{curve.source} {curve.curve}"
        rows: Rows = curve.steps().select("batch_size", "steps").rows()
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


if __name__ == "__main__":
    main()
