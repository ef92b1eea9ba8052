"""The curves of a public grid of language-model runs: which family describes them, and how closely.

Reads a CSV file with the columns params, tokens, batch_sequences, learning_rate and loss (runs of Li et al. 2025, Step
Law). For each model size the goals lie at some shares of the way between the best losses of the smallest and of the
largest token budget. The learning rate is tuned anew at each batch size; tokens to the goal are
interpolated between budgets in log tokens. Curves with six points or more are fitted.

    python benchmarks/step_law.py steplaw_runs.csv
"""

import argparse
import math
from pathlib import Path

import numpy as np
import polars as pl

from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.grid import iso_loss_curves
from batchscale.analysis.noise import residual_noise
from batchscale.analysis.scaling import fit_families
from batchscale.atlas.public_files import SEQUENCE, step_law_grid

FEWEST = 6


def read_curves(path: Path) -> dict[tuple[int, float], pl.DataFrame]:
    """Return the curves by model size and loss: columns ``batch_size`` (sequences) and ``steps``."""
    return {
        (round(curve.parameters), curve.loss): curve.points.with_columns(
            (pl.col("batch_size") / SEQUENCE).round().cast(pl.Int64)
        )
        for curve in iso_loss_curves(step_law_grid(path))
    }


def main() -> None:
    """Print a row per curve, and the median and the worst distance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS.csv")
    distances = []
    print("| parameters | goal | points | chosen | rms | hyperbola | left_branch | iso_loss | B_opt | B_crit |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (params, loss), curve in read_curves(parser.parse_args().runs).items():
        if len(curve) < FEWEST:
            continue
        summary = analyze_points(curve).summary
        assert summary is not None
        logs = (np.log(curve[name].to_numpy().astype(float)) for name in ("batch_size", "steps"))
        fit = fit_families(*logs, residual_noise(len(curve)))
        rms = {each.family.value: each.rms_log for each in fit.families}
        distances.append(fit.rms_log)
        ends = [_text(each) for each in (summary.optimal.batch_size, summary.critical)]
        print(
            f"| {params / 1e6:.0f} M | {loss:.3f} | {len(curve)} | {fit.best.family.value} | {fit.rms_log:.3f} | "
            + " | ".join(f"{rms.get(name, math.nan):.3f}" for name in ("hyperbola", "left_branch", "iso_loss"))
            + f" | {' | '.join(ends)} |"
        )
    print(f"rms of the chosen family: median {np.median(distances):.3f}, worst {max(distances):.3f}")


def _text(estimate: object) -> str:
    value, low, high = (getattr(estimate, name) for name in ("value", "low", "high"))
    whole = [("-" if number is None else f"{number:,.0f}") for number in (value, low, high)]
    return f"{whole[0]} ({whole[1]} to {whole[2]})"


if __name__ == "__main__":
    main()
