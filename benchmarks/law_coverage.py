"""How often 90 % intervals hold the truth, and how wide they are, for truths of every family of laws.

Curves of each family have 3 to 11 sizes by factors of four (up to five sizes) or two and log-normal noise of bare
points. Counted are B_crit (the share that holds the truth, the share with both ends, the median of high over low, the
median error of the value), B_opt, and the family that was chosen. For power laws, which have no B_crit, a value of
B_crit is a false claim. Prints a table per family.

    python benchmarks/law_coverage.py --repetitions 100 --truth iso_loss
"""

import argparse
import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.families import Family, log_critical, log_curves, log_optimal
from batchscale.analysis.noise import residual_noise
from batchscale.analysis.summary import CurveData, CurveSummary, summarize

COUNTS = (3, 4, 5, 6, 8, 11)
NOISES = (0.01, 0.02, 0.05, 0.1, 0.2)
TRUTHS = ("hyperbola", "sharp", "cliff", "left_branch", "short_left_branch", "iso_loss", "power")


@dataclass(frozen=True)
class Cell:
    """One kind of experiment."""

    truth: str
    count: int
    noise: float

    @property
    def sizes(self) -> np.ndarray:
        """From 8 on."""
        return 8.0 * (4.0 if self.count < 6 else 2.0) ** np.arange(self.count)

    @property
    def law(self) -> tuple[Family, np.ndarray]:
        """The family and the coordinates of the truth: B_crit at 60 % of the logarithmic way through the sizes."""
        logs = np.log(self.sizes)
        at = float(logs[0] + 0.6 * (logs[-1] - logs[0]))
        left = float(logs[0] + 0.25 * (logs[-1] - logs[0]))
        return {
            "hyperbola": (Family.HYPERBOLA, np.array([[at]])),
            "sharp": (Family.SHARP, np.array([[at, math.log(3.0)]])),
            "cliff": (Family.SHARP, np.array([[at, math.log(64.0)]])),
            "left_branch": (Family.LEFT_BRANCH, np.array([[at, 2 * left - at]])),  # B_opt at a quarter of the way
            "short_left_branch": (Family.LEFT_BRANCH, np.array([[at, 2 * (left - 0.5) - at]])),
            "iso_loss": (Family.ISO_LOSS, np.array([[left + 1.6, left, 0.2]])),  # β = 0.28, γ = 0.23
            "power": (Family.POWER, np.array([[0.5]])),
        }[self.truth]

    def draw(self, rng: np.random.Generator) -> CurveSummary:
        """Return the summary of a curve with fresh noise."""
        sizes = self.sizes
        logs = 12.0 + log_curves(*self.law, np.log(sizes))[0] + self.noise * rng.normal(size=self.count)
        ends = [(None, None)] * self.count
        return summarize(CurveData(sizes, np.exp(logs), ends, [0] * self.count, residual_noise(self.count)))


@dataclass(frozen=True)
class Shares:
    """The results of a cell; ``width`` and ``error`` are medians, infinite where an end is missing."""

    critical: float
    bounded: float
    width: float
    error: float
    optimal: float
    refused: float
    families: Counter[str]


def measure(cell: Cell, repetitions: int) -> Shares:
    """Return the coverage and width of a cell."""
    rng = np.random.default_rng([*cell.truth.encode(), cell.count, round(1000 * cell.noise)])
    family, law = cell.law
    b_crit, b_opt = (math.exp(min(float(get(family, law)[0]), 50.0)) for get in (log_critical, log_optimal))
    b_opt = min(max(b_opt, float(cell.sizes[0])), float(cell.sizes[-1]))
    critical, bounded, widths, errors, optimal, refused = [], [], [], [], [], []
    families: Counter[str] = Counter()
    for _ in range(repetitions):
        summary = cell.draw(rng)
        found, best = summary.critical, summary.optimal.batch_size
        families["none" if summary.fit is None else summary.fit.best.family.value] += 1
        critical.append(holds(found.low, b_crit, found.high) if family is not Family.POWER else found.value is None)
        bounded.append(found.low is not None and found.high is not None)
        widths.append(found.high / found.low if found.low and found.high else math.inf)
        optimal.append(holds(best.low, b_opt, best.high))
        refused.append(summary.misfit is not None)
        if found.value is not None and family is not Family.POWER:
            errors.append(found.value / b_crit - 1)
    return Shares(
        *(float(np.mean(values)) for values in (critical, bounded)),
        float(np.median(widths)),
        float(np.median(errors)) if errors else math.nan,
        *(float(np.mean(values)) for values in (optimal, refused)),
        families,
    )


def holds(low: float | None, truth: float, high: float | None) -> bool:
    """Return True if an interval holds the truth; a missing end bounds nothing."""
    return (low is None or low <= truth * (1 + 1e-6)) and (high is None or truth <= high * (1 + 1e-6))


def main() -> None:
    """Measure the cells of the requested truths and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--truth", action="append", choices=TRUTHS)
    args = parser.parse_args()
    for truth in args.truth or TRUTHS:
        print(f"\n| {truth}: sizes | noise | B_crit | both ends | width | error | B_opt | misfit | chosen |")
        print("|---|---|---|---|---|---|---|---|---|")
        for count, noise in itertools.product(COUNTS, NOISES):
            cell = measure(Cell(truth, count, noise), args.repetitions)
            chosen = ", ".join(f"{name} {number}" for name, number in cell.families.most_common(3))
            width = "open" if math.isinf(cell.width) else f"{cell.width:.2f}"
            error = "-" if math.isnan(cell.error) else f"{cell.error:+.0%}"
            print(
                f"| {count} | {noise:.0%} | {cell.critical:.0%} | {cell.bounded:.0%} | {width} | {error} | "
                f"{cell.optimal:.0%} | {cell.refused:.0%} | {chosen} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
