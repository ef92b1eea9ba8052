"""How close ``suggest`` comes to the best learning rate, between and outside the measured batch sizes.

The best effective rate is known: ∝ B^½, B, constant, or levelling off, B/(1 + B/512). Steps lie above the law by a
quadratic bowl in its logarithm and in momentum, with 5 % of noise from seeds; rates beyond four times the best diverge.
Rates are drawn over four decades around the best. ``trained_suggestions.py`` trains with suggested values instead.

    python benchmarks/suggestions.py --repetitions 100
"""

import argparse
import itertools
import json
import math
from collections.abc import Callable

import numpy as np
import polars as pl

from batchscale.analysis.suggestion import suggest
from batchscale.records.frames import STUDY_SCHEMA, TRIAL_SCHEMA, Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

NAME = WorkloadName("made", "bowl", "momentum")
METRIC = "val/error"
TRENDS: dict[str, Callable[[float], float]] = {
    "B^½": lambda size: 0.05 * size**0.5,
    "B": lambda size: 0.05 * size,
    "constant": lambda size: 0.5 * size**0,
    "B/(1 + B/512)": lambda size: 0.05 * size / (1 + size / 512),
}
SIZES = {"8 … 1,024, by 2": [8 * 2**i for i in range(8)], "8 … 2,048, by 4": [8 * 4**i for i in range(5)]}
WIDTHS = {"narrow bowl": 0.5, "wide bowl": 1.0}  # decades of rate that cost a factor e
ASKED = {"measured": 1, "between": 1.4, "4× below": 1 / 4, "4× beyond": 4, "16× beyond": 16}


def make_records(
    sizes: list[int], best: Callable[[float], float], width: float, trials: int, rng: np.random.Generator
) -> Records:
    """One experiment's records, every trial measured just before the goal and at it."""
    place = {"dataset": NAME.dataset, "model": NAME.model, "optimizer": NAME.optimizer}
    middle = math.sqrt(sizes[0] * sizes[-1])
    low, high = best(middle) / 100, best(middle) * 100
    space = {
        "learning_rate": {"type": "DOUBLE", "scale": "LOG_SCALE", "min_value": low / 100, "max_value": high},
        "momentum": {"type": "DOUBLE", "scale": "REVERSE_LOG_SCALE", "min_value": 0.0, "max_value": 0.99},
    }
    studies, rows, measured = [], [], []
    for size in sizes:
        facts = {"train_steps": 10**9, "early_stopping": False, "parameter_configs": json.dumps(space), "extra": "{}"}
        studies.append(place | {"batch_size": size} | facts)
        law = 1e5 * (1 + 64 / size)
        rates = np.exp(rng.uniform(math.log(low), math.log(high), trials))
        units = rng.random(trials)
        off = np.log10(rates / best(size))
        steps = law * np.exp((off / width) ** 2 + (units - 0.5) ** 2 + 0.05 * rng.normal(size=trials))
        for i in range(trials):
            diverged = off[i] > math.log10(4)
            count = int(min(steps[i], 1e9))
            head = {"trial_id": i, "status": "INFEASIBLE" if diverged else "COMPLETE", "steps": count, "extra": "{}"}
            momentum = -math.expm1(units[i] * math.log(0.01))
            values = {"learning_rate": rates[i] * (1 - momentum), "momentum": momentum}
            rows.append(place | {"batch_size": size} | head | values)
            for step, value in ((count - 1, 0.5), (count, 0.5 if diverged else 0.05)):
                measured.append({"batch_size": size, "trial_id": i, "step": step, METRIC: value})
    frame = pl.DataFrame(measured)
    schema = dict(TRIAL_SCHEMA) | {"learning_rate": pl.Float64, "momentum": pl.Float64}
    return Records(
        pl.DataFrame(studies, schema=dict(STUDY_SCHEMA)), pl.DataFrame(rows, schema=schema), {NAME: frame.lazy}
    )


def measure(
    sizes: list[int], best: Callable[[float], float], width: float, trials: int, repetitions: int
) -> dict[str, tuple[float, ...]]:
    """By place asked for: shares within a factor two, of ranges that hold the truth, of trainings in the interval."""
    rng = np.random.default_rng([len(sizes), int(10 * best(100)), int(10 * width), trials])
    found: dict[str, list[tuple[bool, bool, bool]]] = {name: [] for name in ASKED}
    for _ in range(repetitions):
        records = make_records(sizes, best, width, trials, rng)
        for name, factor in ASKED.items():
            base = sizes[0] if factor < 1 else sizes[-1] if factor > 2 else sizes[len(sizes) // 2]
            size = round(base * factor)
            result = suggest(records, NAME, Goal(METRIC, 0.1), size)
            row, momentum = (result.values.row(i, named=True) for i in range(2))
            truth = best(size) * (1 - momentum["value"])
            close = abs(math.log(row["value"] / truth)) <= math.log(2)
            holds = row["range_low"] is not None and row["range_low"] <= truth <= row["range_high"]
            off = math.log10(row["value"] / truth)
            unit = math.log(1 - momentum["value"]) / math.log(0.01)
            fresh = 1e5 * (1 + 64 / size) * math.exp((off / width) ** 2 + (unit - 0.5) ** 2 + 0.05 * rng.normal())
            steps = result.steps
            inside = steps.low is not None and steps.high is not None and steps.low <= fresh <= steps.high
            found[name].append((close, holds, inside))
    return {name: tuple(np.mean(rows, axis=0)) for name, rows in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--trials", type=int, default=30)
    arguments = parser.parse_args()
    print(
        "| best rate | sizes | bowl | asked for | within 2× | 90 % range holds it | one training inside the interval |"
    )
    print("|---|---|---|---|---|---|---|")
    for (rate, best), (words, sizes), (bowl, width) in itertools.product(TRENDS.items(), SIZES.items(), WIDTHS.items()):
        for name, shares in measure(sizes, best, width, arguments.trials, arguments.repetitions).items():
            cells = " | ".join(f"{share:.0%}".replace("%", " %") for share in shares)
            print(f"| ∝ {rate} | {words} | {bowl} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
