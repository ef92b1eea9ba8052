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
from batchscale.analysis.noise import residual_noise
from batchscale.analysis.scaling import fit_families

SEQUENCE = 2048  # tokens
SHARES = (0.3, 0.5, 0.7)
FEWEST = 6


def read_curves(path: Path, shares: tuple[float, ...] = SHARES) -> dict[tuple[int, float], pl.DataFrame]:
    """Return the curves by model size and share: columns ``batch_size`` (sequences) and ``steps``."""
    runs = pl.read_csv(path)
    best = runs.group_by("params", "tokens", "batch_sequences").agg(pl.col("loss").min()).sort("tokens")
    curves = {}
    for (params,), model in best.group_by("params", maintain_order=True):
        ends = model.group_by("tokens").agg(pl.col("loss").min()).sort("tokens")["loss"]
        for share in shares:
            goal = ends[0] + share * (ends[-1] - ends[0])
            points = [
                (int(size[0]), tokens / (size[0] * SEQUENCE))
                for size, budgets in model.group_by("batch_sequences", maintain_order=True)
                if (tokens := tokens_to(goal, budgets["tokens"].to_numpy(), budgets["loss"].to_numpy())) is not None
            ]
            frame = pl.DataFrame(points, schema={"batch_size": pl.Int64, "steps": pl.Float64}, orient="row")
            curves[int(params), share] = frame.sort("batch_size")
    return dict(sorted(curves.items()))


def tokens_to(goal: float, tokens: np.ndarray, losses: np.ndarray) -> float | None:
    """Return the tokens at which the loss first passes the goal; None if it never does between two budgets."""
    for i in range(len(losses) - 1):
        if losses[i] >= goal >= losses[i + 1] and losses[i] > losses[i + 1]:
            part = (losses[i] - goal) / (losses[i] - losses[i + 1])
            return float(np.exp(np.log(tokens[i]) + part * np.log(tokens[i + 1] / tokens[i])))
    return None


def main() -> None:
    """Print a row per curve, and the median and the worst distance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS.csv")
    distances = []
    print("| parameters | goal | points | chosen | rms | hyperbola | left_branch | iso_loss | B_opt | B_crit |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (params, share), curve in read_curves(parser.parse_args().runs).items():
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
            f"| {params / 1e6:.0f} M | {share:.0%} | {len(curve)} | {fit.best.family.value} | {fit.rms_log:.3f} | "
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
