"""The noisy quadratic system, fitted on a processor, on runs that it has not seen; beside the published fit.

Reads the training split of Li and Maddison (2026): columns N, B, K, loss and filtered. Several parts of the runs are
held back in turn, ours is fitted to the rest, and both are compared on the part. The published fit was made from all of
these runs, so that for it nothing is held out.

    python benchmarks/noisy_quadratic_system.py tests/golden/nqs_runs.csv
"""

import argparse
import time
from pathlib import Path

import polars as pl

from batchscale.analysis.grid import read_grid
from batchscale.prediction.noisy_quadratic_system import PUBLISHED, fit_system, hold_back_largest, log_error

FOLDS = 4


def main() -> None:
    """Print a row per part that is held back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS.csv")
    path = parser.parse_args().runs
    runs = read_grid(path, merge=False).filter(~pl.read_csv(path)["filtered"])
    steps = pl.col("tokens") / pl.col("batch_size")
    parts = {
        "none (all runs fitted)": (runs, runs),
        "a fifth with the most compute": hold_back_largest(runs, 0.2),
        "two fifths with the most compute": hold_back_largest(runs, 0.4),
        "100 M parameters and more": _apart(runs, pl.col("parameters") >= 1e8),
        "4,000 steps and more": _apart(runs, steps >= 4000),
        "batch size 2,000 and more": _apart(runs, pl.col("batch_size") >= 2000),
    }
    shuffled = runs.sample(fraction=1.0, shuffle=True, seed=0).with_row_index("row")
    for fold in range(FOLDS):
        part = _apart(shuffled, pl.col("row") % FOLDS == fold)
        parts[f"a random quarter ({fold + 1})"] = (part[0].drop("row"), part[1].drop("row"))
    print("| held back | runs | ours | published | seconds of processor |\n|---|---:|---:|---:|---:|")
    for name, (fitted, held) in parts.items():
        start = time.process_time()
        ours = log_error(fit_system(fitted).system, held)
        seconds = time.process_time() - start
        theirs = log_error(PUBLISHED, held)
        print(f"| {name} | {len(held)} | {100 * ours:.2f} % | {100 * theirs:.2f} % | {seconds:.1f} |", flush=True)


def _apart(runs: pl.DataFrame, held: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    return runs.filter(~held), runs.filter(held)


if __name__ == "__main__":
    main()
