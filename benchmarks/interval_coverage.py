"""How often 90 % intervals hold the truth: points, critical batch size and useful size, where the truth is known.

Curves follow S(B) = S_min (1 + (B_crit/B)^k)^(1/k) with k = 1, 2, 3, or a cliff, B_crit off the centre of the sizes.
``bare`` points and repeated ``runs`` have log-normal noise. The trials of a search lie above the law by a quadratic
bowl in two metaparameters, scaled such that the steps to result of fresh searches vary by the noise that is asked for;
30 % of trials never reach the goal. Cells that fall short are measured again, longer. Prints one line per cell and the
table of docs/analysis.md.

    python benchmarks/interval_coverage.py --repetitions 200 > coverage.txt
"""

import argparse
import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.intervals import Finishers, Resampling, StudyPoint, point_intervals
from batchscale.analysis.noise import Noise, run_intervals, run_noise, trial_noise
from batchscale.analysis.summary import CurveData, CurveSummary, summarize

LAWS = {"k = 1": 1.0, "k = 2": 2.0, "k = 3": 3.0, "cliff": math.inf}
PLACES = {"left": 0.3, "right": 0.7}  # of B_crit, on the logarithmic way from the smallest to the largest size
COUNTS = (4, 5, 8, 11)
PROTOCOLS = {"bare": 0, "4 runs": -4, "10 trials": 10, "30 trials": 30, "100 trials": 100}
NOISES = (0.01, 0.1, 0.3)
REACH = 0.7
LEVEL = 0.9
S_MIN = 1e6  # large, so that whole steps do not matter
LOW = 0.85
AGAIN = 5  # times as many repetitions for cells that fell short


@dataclass(frozen=True)
class Cell:
    """One kind of experiment."""

    law: str
    place: str
    count: int
    protocol: str
    noise: float

    @property
    def sizes(self) -> np.ndarray:
        """From 8 on, by factors of four if there are few."""
        return 8.0 * (4.0 if self.count < 8 else 2.0) ** np.arange(self.count)

    @property
    def b_crit(self) -> float:
        """The truth."""
        sizes = self.sizes
        return float(sizes[0] * (sizes[-1] / sizes[0]) ** PLACES[self.place])

    @property
    def steps(self) -> np.ndarray:
        """The law at the sizes."""
        power, ratio = LAWS[self.law], self.b_crit / self.sizes
        return S_MIN * (np.maximum(1.0, ratio) if math.isinf(power) else (1 + ratio**power) ** (1 / power))


@dataclass(frozen=True)
class Shares:
    """How often intervals held the truth; ``bounded`` is the share of intervals of B_crit with both ends."""

    points: float | None
    critical: float
    useful: float
    bounded: float


def bowl(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """How far random trials lie above the best metaparameters."""
    return ((rng.random((*shape, 2)) - 0.4) ** 2).sum(axis=-1)


@functools.cache
def bowl_scale(trials: int) -> tuple[float, float]:
    """The spread of the lowest of a search, and its median, on the bowl's scale."""
    rng = np.random.default_rng(trials)
    values = bowl(rng, (20_000, trials))
    values[rng.random(values.shape) >= REACH] = np.inf
    lowest = values.min(axis=1)
    return float(lowest[np.isfinite(lowest)].std()), float(np.median(lowest))


def measure(cell: Cell, repetitions: int) -> Shares:
    """The coverage in one cell."""
    rng = np.random.default_rng([*cell.law.encode(), cell.count, int(1000 * cell.noise), *cell.protocol.encode()])
    truth = cell.steps
    useful = cell.sizes[np.argmax(truth <= 1.2 * truth.min() * (1 + 1e-9))]
    points, critical, sizes, bounded = [], [], [], []
    for seed in range(repetitions):
        summary, medians = (summarize_study if PROTOCOLS[cell.protocol] > 0 else summarize_runs)(cell, rng, seed)
        for point, median in zip(summary.points, medians, strict=True):
            if point.steps.has_interval:
                points.append(_holds(point.steps.low, median, point.steps.high))
        critical.append(_holds(summary.critical.low, cell.b_crit, summary.critical.high))
        bounded.append(summary.critical.low is not None and summary.critical.high is not None)
        sizes.append(_holds(summary.regimes.useful.low, useful, summary.regimes.useful.high))
    return Shares(_mean(points), _mean(critical) or 0.0, _mean(sizes) or 0.0, _mean(bounded) or 0.0)


def summarize_runs(cell: Cell, rng: np.random.Generator, seed: int) -> tuple[CurveSummary, np.ndarray]:
    """The summary of bare points or repeated runs, and the true steps."""
    del seed
    runs = max(-PROTOCOLS[cell.protocol], 1)
    logs = np.log(cell.steps)[:, None] + cell.noise * rng.normal(size=(cell.count, runs))
    groups = list(logs)
    noise, ends = run_noise(groups), run_intervals(groups, LEVEL)
    return _summary(cell.sizes, np.exp(logs.mean(axis=1)), ends, noise), cell.steps


def summarize_study(cell: Cell, rng: np.random.Generator, seed: int) -> tuple[CurveSummary, np.ndarray]:
    """The summary of a curve with searches behind it, and the true median steps to result of fresh searches."""
    trials = PROTOCOLS[cell.protocol]
    spread, middle = bowl_scale(trials)
    factor = cell.noise / spread
    points = []
    for size, level in zip(cell.sizes, cell.steps, strict=True):
        steps = np.empty(0)
        while not steps.size:  # a search that reaches nothing is run again, and is no part of a curve
            steps = level * np.exp(factor * bowl(rng, (trials,)))[rng.random(trials) < REACH]
        points.append(StudyPoint(int(size), round(steps.min()), Finishers(np.sort(steps), trials)))
    ends = [(one.low, one.high) for one in point_intervals(points, Resampling(LEVEL, 400, seed))]
    steps = np.array([float(point.steps) for point in points])
    return _summary(cell.sizes, steps, ends, trial_noise(points)), cell.steps * math.exp(factor * middle)


def cells() -> list[Cell]:
    """All of them."""
    return [Cell(*one) for one in itertools.product(LAWS, PLACES, COUNTS, PROTOCOLS, NOISES)]


def table(found: dict[Cell, Shares]) -> str:
    """Coverage by law and protocol: the mean, and the least of the cells, in percent."""
    lines = ["| law | protocol | points | B_crit | useful size | B_crit with both ends |", "|---|---|---|---|---|---|"]
    for law, protocol in itertools.product(LAWS, PROTOCOLS):
        some = [shares for cell, shares in found.items() if (cell.law, cell.protocol) == (law, protocol)]
        if not some:
            continue
        columns = [[getattr(one, name) for one in some] for name in ("points", "critical", "useful", "bounded")]
        lines.append(f"| {law} | {protocol} | " + " | ".join(_span(column) for column in columns) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure all cells and print them, then the table, then the cells that fall short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    repetitions = parser.parse_args().repetitions
    found = {}
    for cell in cells():
        shares = measure(cell, repetitions)
        if min(shares.points or 1, shares.critical, shares.useful) < LOW:
            shares = measure(cell, AGAIN * repetitions)  # by chance, or short?
        found[cell] = shares
        print(cell, shares, flush=True)
    print(table(found))
    for name in ("points", "critical", "useful"):
        short = {cell: getattr(shares, name) for cell, shares in found.items() if (getattr(shares, name) or 1) < LOW}
        print(f"{name}: {len(short)} of {len(found)} cells below {LOW:.0%}")
        for cell, share in sorted(short.items(), key=lambda item: item[1]):
            print(f"  {share:.1%} {cell}")


def _summary(
    sizes: np.ndarray, steps: np.ndarray, ends: list[tuple[float | None, float | None]], noise: Noise
) -> CurveSummary:
    return summarize(CurveData(sizes, steps, ends, [0] * len(sizes), noise), level=LEVEL)


def _holds(low: float | None, truth: float, high: float | None) -> bool:
    return (low is None or low <= truth * (1 + 1e-9)) and (high is None or truth <= high * (1 + 1e-9))


def _mean(values: list[bool]) -> float | None:
    return float(sum(values) / len(values)) if values else None


def _span(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * sum(known) / len(known):.0f} ({100 * min(known):.0f})" if known else "-"


if __name__ == "__main__":
    main()
