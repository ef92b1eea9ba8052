"""Adaptive experiments that choose a configuration, against the truth and against a fixed design.

Simulated studies as in ``adaptive.py``, with B_crit at random between 32 and 1,024, on three kinds of machines with up
to 16 hosts whose step times and prices are drawn as well. The true best configuration is known. "Within" is the share
of experiments whose choice takes at most ``factor`` times its time or money. A fixed design, and the first round of the
adaptive one alone, choose by the law of their points.

    python benchmarks/adaptive_decisions.py --repetitions 25
"""

import argparse
import math
from pathlib import Path

import numpy as np

from adaptive import FIXED, POOL, S_MIN, Run, run_adaptive, run_fixed, simulated_trials
from batchscale.analysis.confidence_set import FEWEST_SIZES
from batchscale.analysis.noise import trial_noise
from batchscale.analysis.scaling import fit_families
from batchscale.prediction.decision import Configuration, DecisionQuestion
from batchscale.prediction.next_round import Design, start_round
from batchscale.prediction.quantities import AimQuestion
from batchscale.spec.adaptive import AdaptivePlan, Aim, finishers_of

HOSTS = (1, 2, 4, 8, 16)
FIRST = start_round(Design(AdaptivePlan(), AimQuestion(Aim.CRITICAL, POOL[0], POOL[-1]), POOL))
MACHINES = (("small", 1.0, 1.0), ("large", 4.0, 3.6), ("huge", 16.0, 16.0))
"""The name, the examples a second and the price of each machine, as multiples of the small one's."""


def draw_question(aim: Aim, rng: np.random.Generator) -> DecisionQuestion:
    """Configurations of which larger ones exchange gradients for longer; the smallest step takes as much on all."""
    least, per_example = math.exp(rng.uniform(math.log(0.005), math.log(0.05))), math.exp(rng.uniform(-8, -5))
    exchange, startup = least * rng.uniform(0.2, 2.0), rng.uniform(60, 600)
    configurations = []
    for name, speed, price in MACHINES:
        for hosts in HOSTS:
            hourly = hosts * price * rng.uniform(0.9, 1.1)
            for size in POOL:
                if size >= hosts:
                    step_s = least + per_example * size / (speed * hosts) + exchange * math.log2(hosts)
                    rate = hourly / 3600 if aim is Aim.CHEAPEST_CONFIGURATION else 1.0
                    place = f"{hosts} {name}"
                    configurations.append(Configuration(place, size, startup * rate, step_s * rate))
    return DecisionQuestion(aim, tuple(configurations), "USD")


def choose(question: DecisionQuestion, run: Run) -> Configuration:
    """The best configuration by the best law of a run's points."""
    if len(run.points) < FEWEST_SIZES:
        return max(question.configurations, key=lambda each: each.per_step)  # no law: any would do, so the worst
    sizes, steps = np.array([[float(point.batch_size), float(point.steps)] for point in run.points]).T
    best = fit_families(np.log(sizes), np.log(steps), trial_noise(run.points)).best
    steps_at = dict(zip(POOL, best.steps(np.array(POOL, dtype=float)), strict=True))
    return min(question.configurations, key=lambda each: each.fixed + each.per_step * steps_at[each.batch_size])


def true_regret(question: DecisionQuestion, chosen: Configuration, b_crit: float) -> float:
    """The true time or money of a configuration over that of the true best."""

    def amount(each: Configuration) -> float:
        return each.fixed + each.per_step * S_MIN * (1 + b_crit / each.batch_size)

    return amount(chosen) / min(map(amount, question.configurations))


def simulate(aim: Aim, factor: float, repetitions: int, seed: int) -> None:
    """Print a row per shape of the trials' distribution, and one for all."""
    from simulated_studies import SHAPES

    every = []
    for shape in SHAPES:
        rng = np.random.default_rng([seed, *shape.encode()])
        rows = []
        for _ in range(repetitions):
            b_crit = float(np.exp(rng.uniform(math.log(32), math.log(1024))))
            question = draw_question(aim, rng)
            trials = simulated_trials(shape, b_crit, 1.0, rng)
            run = run_adaptive(trials, POOL, AdaptivePlan(aim, factor, step_times=(Path("drawn"),)), question=question)
            fixed = run_fixed(trials, FIXED, 20)
            first = run_fixed(trials, FIRST.sizes, FIRST.trials, finishers_of(FIRST.trials))
            regrets = [true_regret(question, choose(question, each), b_crit) for each in (run, first, fixed)]
            is_met = "no other may be" in run.reason
            rows.append((*regrets, is_met, len(run.sizes), run.trials, run.rounds, fixed.cost / run.cost))
        print(_row(f"{aim.label}, {shape.replace('_', ' ')}", rows, factor), flush=True)
        every += rows
    print(_row(f"{aim.label}, all", every, factor), flush=True)


def _row(name: str, rows: list[tuple[float, ...]], factor: float) -> str:
    table = np.array(rows, dtype=float)
    cells = [f"{100 * (table[:, i] <= factor).mean():.0f} %" for i in (0, 1, 2)]
    cells += [f"{np.quantile(table[:, i], 0.95):.2f}" for i in (0, 1, 2)] + [f"{100 * table[:, 3].mean():.0f} %"]
    cells += [f"{table[:, i].mean():.1f}" for i in (4, 5, 6)]
    low, high = np.quantile(table[:, 7], [0.1, 0.9])
    return f"| {name} | " + " | ".join([*cells, f"{np.median(table[:, 7]):.1f}× ({low:.1f} to {high:.1f})"]) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--factor", type=float, default=1.1)
    parser.add_argument("--seed", type=int, default=37)
    options = parser.parse_args()
    header = "aim, trials of a search | within: adaptive | its first round | fixed"
    header += " | 95 % of regrets: adaptive | its first round | fixed | ended by the factor"
    print(f"| {header} | sizes | trials | rounds | trial-steps saved (10 to 90 %) |\n|{'---|' * 12}")
    for aim in (Aim.FASTEST_CONFIGURATION, Aim.CHEAPEST_CONFIGURATION):
        simulate(aim, options.factor, options.repetitions, options.seed)


if __name__ == "__main__":
    main()
