"""Adaptive experiments against fixed ones: trial-steps, answers and coverage, where the truth is known or was measured.

``simulated``: studies of a known law, as ``tests/analysis/simulated_studies.py`` draws them, B_crit at random between
32 and 1,024. Both designs see the same trials: the fixed one 20 or 100 of them at eight sizes from 1 to 16,384, the
adaptive one as many as it chooses at doublings between the same ends. A race with four finishers ends trials in both.
``replayed``: the same with trials that are drawn from kept records. ``live``: both designs are run.

    python benchmarks/adaptive.py simulated --repetitions 25
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from batchscale.analysis.intervals import Finishers, StudyPoint
from batchscale.analysis.noise import trial_noise
from batchscale.analysis.summary import CurveData, CurveSummary, summarize
from batchscale.errors import AnalysisError
from batchscale.prediction.next_round import Design, MeasuredSize, Progress, next_round, start_round
from batchscale.prediction.quantities import Question
from batchscale.spec.adaptive import Aim, AdaptivePlan, Choice, ChoiceKind

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "analysis"))

FINISHERS = 4
S_MIN = 1e6
NEVER = 4.0  # times the law: the step budget of trials that do not reach the goal
FIXED = tuple(4**power for power in range(8))
POOL = tuple(2**power for power in range(15))


@dataclass
class Trials:
    """The trials of an experiment by batch size: their steps to the goal, infinite if they never reach it."""

    draw: Callable[[int, int], np.ndarray]
    budget: Callable[[int], float]
    spacing: Callable[[float], float] = lambda _steps: 0.0
    drawn: dict[int, np.ndarray] = field(default_factory=dict)

    def study(self, size: int, trials: int, finishers: int = FINISHERS) -> tuple[StudyPoint | None, float]:
        """The point of a race between the first trials, None if none reached the goal, and its trial-steps."""
        known = self.drawn.get(size, np.empty(0))
        if len(known) < trials:
            known = np.concatenate([known, self.draw(size, trials - len(known))])
            self.drawn[size] = known
        steps = np.sort(known[:trials])
        reached = steps[np.isfinite(steps)][:finishers]
        end = reached[-1] if len(reached) == finishers else self.budget(size)
        if not reached.size:
            return None, trials * end
        spacing = round(self.spacing(float(reached[0])))
        return StudyPoint(size, round(reached[0]), Finishers(reached, trials), spacing), trials * end


@dataclass(frozen=True)
class Run:
    """A design on one experiment: its summary (None: too few points), trial-steps, sizes, trials, and the end."""

    summary: CurveSummary | None
    cost: float
    sizes: tuple[int, ...]
    trials: int
    rounds: int = 0
    reason: str = ""

    @property
    def factor(self) -> float:
        """The upper end of the interval of B_crit over its lower end."""
        if self.summary is None or not self.summary.critical.low or not self.summary.critical.high:
            return math.inf
        return self.summary.critical.high / self.summary.critical.low


def summary_of(points: Sequence[StudyPoint]) -> CurveSummary | None:
    """The summary of the analysis."""
    sizes, steps = (np.array([float(value) for value in values]) for values in zip(*((p.batch_size, p.steps) for p in points), strict=True))
    spacings = [point.spacing for point in points]
    try:
        return summarize(CurveData(sizes, steps, [(None, None)] * len(points), spacings, trial_noise(points)))
    except AnalysisError:
        return None


def run_fixed(trials: Trials, sizes: Sequence[int], count: int) -> Run:
    """Run a fixed design."""
    studies = [trials.study(size, count) for size in sizes]
    points = [point for point, _ in studies if point is not None]
    return Run(summary_of(points), sum(cost for _, cost in studies), tuple(sizes), count)


def run_adaptive(trials: Trials, pool: Sequence[int], plan: AdaptivePlan, prediction: float | None = None) -> Run:
    """Run an adaptive design to its end."""
    design = Design(plan, Question(plan.aim, pool[0], pool[-1]), tuple(pool))
    choices = [start_round(design, None if prediction is None else (prediction, "a guess"))]
    while choices[-1].kind is not ChoiceKind.STOP:
        sizes = sorted({size for choice in choices for size in choice.sizes})
        count = max(choice.trials for choice in choices)
        studies = {size: trials.study(size, count) for size in sizes}
        points = tuple(point for point, _ in studies.values() if point is not None)
        measured = tuple(
            MeasuredSize(size, None if point is None else float(point.steps), cost) for size, (point, cost) in studies.items()
        )
        choices.append(next_round(design, Progress(measured, trial_noise(points), points, count, len(choices))))
    cost = sum(size.cost for size in measured)
    return Run(summary_of(points), cost, tuple(sizes), count, len(choices) - 1, choices[-1].reason)


# --- simulated studies ------------------------------------------------------------------------------------------


def simulated_trials(shape: str, b_crit: float, sharpness: float, rng: np.random.Generator) -> Trials:
    """Trials above a law by a random factor, of which 30 % never reach the goal."""
    from simulated_studies import REACH, SHAPES

    def law(size: int) -> float:
        return S_MIN * (1 + (b_crit / size) ** sharpness) ** (1 / sharpness)

    def draw(size: int, count: int) -> np.ndarray:
        steps = law(size) * SHAPES[shape](rng, (count,))
        return np.where(rng.random(count) < REACH, steps, np.inf)

    return Trials(draw, lambda size: NEVER * law(size))


def simulate(repetitions: int, plan: AdaptivePlan, sharpness: float = 1.0, guess: float | None = None) -> None:
    """Print a row per shape of the trials' distribution, and one for all."""
    from simulated_studies import SHAPES

    header = "shape | B_crit within: adaptive | fixed, 20 trials | factor: adaptive | fixed, 20 | sizes | trials | rounds"
    print(f"| {header} | trial-steps saved: of 20 trials (10 to 90 %) | of 100 trials | error |\n|{'---|' * 11}")
    every: list[tuple[float, ...]] = []
    for shape in SHAPES:
        rng = np.random.default_rng([17, *shape.encode()])
        rows = []
        for _ in range(repetitions):
            b_crit = float(np.exp(rng.uniform(math.log(32), math.log(1024))))
            trials = simulated_trials(shape, b_crit, sharpness, rng)
            prediction = None if guess is None else b_crit * math.exp(guess * rng.normal())
            run, few, many = run_adaptive(trials, POOL, plan, prediction), run_fixed(trials, FIXED, 20), run_fixed(trials, FIXED, 100)
            value = run.summary.critical.value if run.summary else None
            error = abs(math.log(value / b_crit)) if value else math.nan
            row = (_holds(run, b_crit), _holds(few, b_crit), run.factor, few.factor, len(run.sizes), run.trials, run.rounds)
            rows.append((*row, few.cost / run.cost, many.cost / run.cost, error))
        print(_row(shape.replace("_", " "), rows), flush=True)
        every += rows
    print(_row("all", every))


def _holds(run: Run, b_crit: float) -> bool:
    return run.summary is not None and run.summary.critical.has_interval and run.summary.critical.includes(b_crit)


def _row(name: str, rows: Sequence[tuple[float, ...]]) -> str:
    table = np.array(rows, dtype=float)
    cells = [f"{100 * table[:, i].mean():.0f} %" for i in (0, 1)]
    cells += [f"{np.median(table[:, i]):.2f}" for i in (2, 3)]
    cells += [f"{table[:, i].mean():.1f}" for i in (4, 5, 6)]
    low, high = np.quantile(table[:, 7], [0.1, 0.9])
    cells += [f"{np.median(table[:, 7]):.1f}× ({low:.1f} to {high:.1f})", f"{np.median(table[:, 8]):.0f}×"]
    return f"| {name} | " + " | ".join([*cells, f"{100 * math.expm1(np.nanmedian(table[:, 9])):.0f} %"]) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("simulated",))
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--sharpness", type=float, default=1.0)
    parser.add_argument("--guess", type=float, default=None)
    parser.add_argument("--first-trials", type=int, default=8)
    options = parser.parse_args()
    plan = AdaptivePlan(Aim.CRITICAL, options.factor, first_trials=options.first_trials)
    began = time.time()
    simulate(options.repetitions, plan, options.sharpness, options.guess)
    print(f"{time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
