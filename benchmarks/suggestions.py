"""How close ``suggest`` comes to the best learning rate, between and outside the measured batch sizes.

The best rate is known: 0.05 B^p with p = 1/2 and 1. Steps lie above the law by a quadratic bowl in the logarithm of the
rate (and in momentum, for two metaparameters), with 5 % of noise from seeds; rates beyond four times the best diverge.
Rates are drawn over four decades around the best. Prints the table of docs/analysis.md.

    python benchmarks/suggestions.py --repetitions 100
"""

import argparse
import itertools
import json
import math

import numpy as np
import polars as pl

from batchscale.analysis.suggestion import suggest
from batchscale.records.frames import STUDY_SCHEMA, TRIAL_SCHEMA, Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

NAME = WorkloadName("made", "bowl", "momentum")
METRIC = "val/error"
POWERS = {"B^½": 0.5, "B": 1.0}
SIZES = {"8 … 1,024, by 2": [8 * 2**i for i in range(8)], "8 … 2,048, by 4": [8 * 4**i for i in range(5)]}
WIDTHS = {"narrow bowl": 0.5, "wide bowl": 1.0}  # decades of rate that cost a factor e
ASKED = {"measured": 1, "between": 1.4, "4× below": 1 / 4, "4× beyond": 4, "16× beyond": 16}


def best_rate(size: float, power: float) -> float:
    """The truth."""
    return 0.05 * size**power


def make_records(sizes: list[int], power: float, width: float, trials: int, rng: np.random.Generator) -> Records:
    """One experiment's records, every trial measured just before the goal and at it."""
    place = {"dataset": NAME.dataset, "model": NAME.model, "optimizer": NAME.optimizer}
    middle = math.sqrt(sizes[0] * sizes[-1])
    low, high = best_rate(middle, power) / 100, best_rate(middle, power) * 100
    space = {
        "learning_rate": {"type": "DOUBLE", "scale": "LOG_SCALE", "min_value": low, "max_value": high},
        "momentum": {"type": "DOUBLE", "scale": "REVERSE_LOG_SCALE", "min_value": 0.0, "max_value": 0.99},
    }
    studies, rows, measured = [], [], []
    for size in sizes:
        facts = {"train_steps": 10**9, "early_stopping": False, "parameter_configs": json.dumps(space), "extra": "{}"}
        studies.append(place | {"batch_size": size} | facts)
        law = 1e5 * (1 + 64 / size)
        rates = np.exp(rng.uniform(math.log(low), math.log(high), trials))
        units = rng.random(trials)
        off = np.log10(rates / best_rate(size, power))
        steps = law * np.exp((off / width) ** 2 + (units - 0.5) ** 2 + 0.05 * rng.normal(size=trials))
        for i in range(trials):
            diverged = off[i] > math.log10(4)
            count = int(min(steps[i], 1e9))
            head = {"trial_id": i, "status": "INFEASIBLE" if diverged else "COMPLETE", "steps": count, "extra": "{}"}
            momentum = -math.expm1(units[i] * math.log(0.01))
            rows.append(place | {"batch_size": size} | head | {"learning_rate": rates[i], "momentum": momentum})
            for step, value in ((count - 1, 0.5), (count, 0.5 if diverged else 0.05)):
                measured.append({"batch_size": size, "trial_id": i, "step": step, METRIC: value})
    frame = pl.DataFrame(measured)
    schema = dict(TRIAL_SCHEMA) | {"learning_rate": pl.Float64, "momentum": pl.Float64}
    return Records(
        pl.DataFrame(studies, schema=dict(STUDY_SCHEMA)), pl.DataFrame(rows, schema=schema), {NAME: frame.lazy}
    )


def measure(
    sizes: list[int], power: float, width: float, trials: int, repetitions: int
) -> dict[str, tuple[float, ...]]:
    """By place asked for: the share within a factor two, the share of ranges that hold the truth, the steps' error."""
    rng = np.random.default_rng([len(sizes), int(10 * power), int(10 * width), trials])
    found: dict[str, list[tuple[bool, bool, bool]]] = {name: [] for name in ASKED}
    for _ in range(repetitions):
        records = make_records(sizes, power, width, trials, rng)
        for name, factor in ASKED.items():
            base = sizes[0] if factor < 1 else sizes[-1] if factor > 2 else sizes[len(sizes) // 2]
            size = round(base * factor)
            result = suggest(records, NAME, Goal(METRIC, 0.1), size)
            row = result.values.row(0, named=True)
            truth = best_rate(size, power)
            close = abs(math.log(row["value"] / truth)) <= math.log(2)
            holds = row["range_low"] is not None and row["range_low"] <= truth <= row["range_high"]
            law = 1e5 * (1 + 64 / size)
            right = result.steps.value is not None and abs(math.log(result.steps.value / law)) <= math.log(1.2)
            found[name].append((close, holds, right))
    return {name: tuple(np.mean(rows, axis=0)) for name, rows in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--trials", type=int, default=30)
    arguments = parser.parse_args()
    print("| best rate | sizes | bowl | asked for | within 2× | 90 % range holds it | steps within 20 % |")
    print("|---|---|---|---|---|---|---|")
    for (rate, power), (words, sizes), (bowl, width) in itertools.product(
        POWERS.items(), SIZES.items(), WIDTHS.items()
    ):
        for name, shares in measure(sizes, power, width, arguments.trials, arguments.repetitions).items():
            cells = " | ".join(f"{share:.0%}".replace("%", " %") for share in shares)
            print(f"| ∝ {rate} | {words} | {bowl} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
