"""How often the edge guard misses an optimum outside the space, and how often it searches again for nothing.

Studies are simulated whose truth is known: the logarithm of the steps to the goal is a parabola in the unit coordinates
of three metaparameters, of which the first has its optimum at the given place, the second in the middle, and the third
does not matter. Beside the guard stands the rule it replaced: the best trial lies within 5 % of an end.

    python benchmarks/edge_guard.py [--studies 400]
"""

import argparse
from dataclasses import dataclass

import numpy as np

from batchscale.search.edge_guard import RankedTrial, Side, edge_distances, find_edges
from batchscale.search.points import unit_points
from batchscale.spec.experiment import Algorithm
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace

NAMES = ("matters", "some", "none")
SPACE = SearchSpace(tuple(ParameterConfig(name, ParameterType.DOUBLE, 0, 1) for name in NAMES))
TRIALS = (6, 12, 24, 50, 100)
NOISE = 0.15


@dataclass(frozen=True)
class Truth:
    """Where the optimum of the first metaparameter lies, how sharp it is, and from where on training diverges."""

    name: str
    optimum: float
    curvature: float = 6.0
    diverges_from: float = 2.0

    @property
    def outside(self) -> bool:
        return self.optimum > 1


TRUTHS = (
    Truth("1.75 of the range", 1.75),
    Truth("1.25 of the range", 1.25),
    Truth("1.1 of the range", 1.1),
    Truth("1.25, flat", 1.25, curvature=2.0),
    Truth("0.5 of the range", 0.5),
    Truth("0.8 of the range", 0.8),
    Truth("0.5, flat", 0.5, curvature=2.0),
    Truth("0.8, diverges beyond 0.85", 0.8, diverges_from=0.85),
)


def simulate(truth: Truth, trials: int, seed: int) -> list[RankedTrial]:
    """The trials of one study."""
    rng = np.random.default_rng([seed, trials])
    units = unit_points(3, seed, 0, trials, Algorithm.HALTON)
    found = []
    for unit in units:
        log_steps = truth.curvature * (unit[0] - truth.optimum) ** 2 + 2 * (unit[1] - 0.5) ** 2
        score = np.inf if unit[0] > truth.diverges_from else log_steps + NOISE * rng.standard_normal()
        found.append(
            RankedTrial(dict(zip(("matters", "some", "none"), map(float, unit), strict=True)), (float(score),))
        )
    return found


def old_rule(trials: list[RankedTrial]) -> set[tuple[str, Side]]:
    best = min(trials, key=lambda trial: trial.score)
    return {(e.parameter, e.side) for e in edge_distances(SPACE, best.values) if e.distance < 0.05}


def new_rule(trials: list[RankedTrial]) -> set[tuple[str, Side]]:
    return {(e.parameter, e.side) for e in find_edges([SPACE], trials)}


def mistakes(truth: Truth, trials: int, studies: int) -> dict[str, float]:
    """The shares of studies in which the true end was missed, and in which another one was searched for nothing."""
    counts = dict.fromkeys(("old missed", "old needless", "new missed", "new needless"), 0)
    true_end = {("matters", Side.HIGH)} if truth.outside else set()
    for seed in range(studies):
        simulated = simulate(truth, trials, seed)
        for name, rule in (("old", old_rule), ("new", new_rule)):
            found = rule(simulated)
            counts[f"{name} missed"] += bool(true_end - found)
            counts[f"{name} needless"] += bool(found - true_end)
    return {name: count / studies for name, count in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=400)
    studies = parser.parse_args().studies
    print("| optimum | trials | missed, before | missed, now | needless, before | needless, now |")
    print("|---|---|---|---|---|---|")
    for truth in TRUTHS:
        for trials in TRIALS:
            found = mistakes(truth, trials, studies)
            missed = (f"{found['old missed']:.0%}", f"{found['new missed']:.0%}") if truth.outside else ("", "")
            needless = f"{found['old needless']:.0%} | {found['new needless']:.0%}"
            print(f"| {truth.name} | {trials} | {missed[0]} | {missed[1]} | {needless} |")


if __name__ == "__main__":
    main()
