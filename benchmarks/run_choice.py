"""Choosing the runs of a scaling law one after another, on the carried runs of Step Law (Li et al. 2025).

Runs cost 6·N·D. All runs of a large budget are held out, and every candidate costs at most a quarter of one of them.
After a few cheap random runs the next is chosen by expected shrinkage of the interval of the held-out lowest loss, by
D- or V-optimality (each per cost), or at random. After each choice a law of the loss is fitted anew, and its prediction
of the lowest loss of the held-out budget is compared with the measured one. Prints the median error over seeds by the
share of the cost of all candidates, and draws it.

    python benchmarks/run_choice.py --seeds 8 --chart docs/pictures/run-choice.svg
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import least_squares

from batchscale.atlas.table import read_step_law
from batchscale.prediction.design import CRITERIA, LinearState, choose_next

Floats = NDArray[np.float64]
BUDGETS = ((536872960.0, 5e10), (268304384.0, 8e10), (214663680.0, 1e11))  # held out: the nearest of the grid
FIRST = 12  # random runs of the cheapest quarter
PICKS = 60
SHARES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
# E, log amounts and exponents of N and D, log2 of the best batch size and its slope, of the best rate and its slopes,
# log curvatures; before any run, with their deviations
PRIOR = np.array([1.7, np.log(0.35), 0.3, np.log(0.35), 0.3, 18.5, 0.6, -9.0, -0.5, 0.2, np.log(0.01), np.log(0.02)])
DEVIATIONS = np.array([0.5, 1.0, 0.15, 1.0, 0.15, 2.0, 0.4, 2.0, 0.5, 0.4, 1.0, 1.0])
NOISE = 0.02**2  # of a loss around the law, its misfit included


@dataclass(frozen=True)
class Pool:
    """Runs as logarithms to base 2: parameters over 2^28, tokens over 2^33, batch size in tokens, learning rate."""

    logs: Floats
    loss: Floats
    cost: Floats

    def take(self, rows: "NDArray[np.int64] | list[int]") -> "Pool":
        """Return some of the runs."""
        return Pool(self.logs[rows], self.loss[rows], self.cost[rows])


def make_pool(grid: pl.DataFrame) -> Pool:
    """Return the runs of a grid."""
    columns = [grid[name].to_numpy() for name in ("parameters", "tokens", "batch_size", "learning_rate")]
    logs = np.log2(np.stack(columns, axis=1)) - np.array([28.0, 33.0, 0.0, 0.0])
    return Pool(logs, grid["loss"].to_numpy(), 6 * columns[0] * columns[1])


def lowest(theta: Floats, logs: Floats) -> Floats:
    """Return the loss of the law at the best batch size and learning rate."""
    by_size = np.exp(theta[1] - theta[2] * np.log(2) * logs[:, 0])
    by_tokens = np.exp(theta[3] - theta[4] * np.log(2) * logs[:, 1])
    return np.asarray(theta[0] + by_size + by_tokens)


def law(theta: Floats, logs: Floats) -> Floats:
    """Return the loss of runs: a bowl around the best batch size and learning rate, which flattens far from it."""
    off_batch = logs[:, 2] - theta[5] - theta[6] * logs[:, 1]
    off_rate = logs[:, 3] - theta[7] - theta[8] * logs[:, 0] - theta[9] * logs[:, 1] - 0.5 * off_batch
    return np.asarray(lowest(theta, logs) + np.exp(theta[10]) * off_batch**2 + np.exp(theta[11]) * off_rate**2)


def derivatives(function: Callable[[Floats, Floats], Floats], theta: Floats, logs: Floats) -> Floats:
    """Return the rows of derivatives by the parameters, in units of their deviations."""
    steps = 1e-5 * np.eye(len(theta)) * DEVIATIONS
    columns = [(function(theta + step, logs) - function(theta - step, logs)) / 2e-5 for step in steps]
    return np.stack(columns, axis=1)


def fit(pool: Pool, start: Floats) -> Floats:
    """Return the law of robust least squares, with the prior."""

    def residuals(theta: Floats) -> Floats:
        scaled = (law(theta, pool.logs) - pool.loss) / np.sqrt(NOISE)
        robust = np.sign(scaled) * np.sqrt(2 * (np.sqrt(1 + scaled**2) - 1))  # linear far away
        return np.concatenate([robust, (theta - PRIOR) / DEVIATIONS])

    return np.asarray(least_squares(residuals, start, x_scale=DEVIATIONS, max_nfev=40, ftol=1e-6).x)


def choose_runs(pool: Pool, target: Pool, method: str, seed: int) -> list[tuple[float, float]]:
    """Return the share of the cost of all candidates and the error of the held-out lowest loss, run after run."""
    random = np.random.default_rng(seed)
    cheap = np.flatnonzero(pool.cost <= np.quantile(pool.cost, 0.25))
    chosen = [int(row) for row in random.choice(cheap, FIRST, replace=False)]
    best = target.logs[:1]
    theta, path = PRIOR, []
    for _ in range(PICKS):
        theta = fit(pool.take(chosen), theta)
        error = abs(float(lowest(theta, best)[0]) - target.loss.min())
        path.append((pool.cost[chosen].sum() / pool.cost.sum(), error))
        left = np.setdiff1d(np.arange(len(pool.loss)), chosen)
        if method == "random":
            chosen.append(int(random.choice(left)))
            continue
        rows = derivatives(law, theta, pool.logs)
        state = LinearState.of_rows(rows[chosen], NOISE, np.ones(len(PRIOR)))
        asked = derivatives(lowest, theta, best)
        chosen.append(int(left[choose_next(state, rows[left], pool.cost[left], asked, CRITERIA[method])]))
    return path


def measure(seeds: int) -> pl.DataFrame:
    """Return the error of each method, held-out budget and seed at the shares of the cost."""
    grid = read_step_law()
    rows = []
    for wanted in BUDGETS:
        distance = ((grid["parameters"] / wanted[0]).log().abs() + (grid["tokens"] / wanted[1]).log().abs()).to_numpy()
        held = pl.Series(distance <= distance.min() + 1e-9)
        target = make_pool(grid.filter(held))
        pool = make_pool(grid.filter(~held & (6 * grid["parameters"] * grid["tokens"] <= target.cost[0] / 4)))
        everything = fit(pool, PRIOR)
        name = f"{grid.filter(held)['parameters'][0] / 1e6:.0f} M, {grid.filter(held)['tokens'][0] / 1e9:.0f} B tokens"
        rest = abs(float(lowest(everything, target.logs[:1])[0]) - target.loss.min())
        print(f"{name}: {len(pool.loss)} candidates; with all of them the error is {rest:.4f}", flush=True)
        for method in ("random", *CRITERIA):
            for seed in range(seeds):
                path = choose_runs(pool, target, method, seed)
                for share in SHARES:
                    spent = [error for cost, error in path if cost <= share]
                    if spent and path[-1][0] >= share:
                        rows.append((name, method, seed, share, spent[-1]))
    return pl.DataFrame(rows, schema=["budget", "method", "seed", "share", "error"], orient="row")


def main() -> None:
    """Print the table of median errors, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--chart", type=Path)
    options = parser.parse_args()
    errors = measure(options.seeds)
    middle = errors.group_by("budget", "share", "method").agg(pl.col("error").median(), pl.len())
    for (budget,), part in middle.sort("budget", "share").group_by("budget", maintain_order=True):
        print(f"\n{budget}\n\n| share of the cost | " + " | ".join(("random", *CRITERIA)) + " |\n|---|" + "---|" * 4)
        for (share,), cells in part.group_by("share", maintain_order=True):
            values = {
                row["method"]: f"{row['error']:.4f}"
                for row in cells.filter(pl.col("len") * 2 > options.seeds).to_dicts()
            }
            print(
                f"| {100 * share:g} % | " + " | ".join(values.get(name, "-") for name in ("random", *CRITERIA)) + " |"
            )
    if options.chart is not None:
        shown = middle.filter(pl.col("len") * 2 > options.seeds)
        axes = {"x": alt.X("share:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="%"), title="cost")}
        axes["y"] = alt.Y("error:Q", scale=alt.Scale(type="log"), title="error of the loss (median)")
        lines = alt.Chart(shown).mark_line(point=True).encode(**axes, color="method:N")
        lines.properties(width=220, height=200).facet("budget:N", columns=3).save(options.chart)


if __name__ == "__main__":
    main()
