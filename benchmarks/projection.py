"""What the paper's full study would take on many accelerators: hours, money, disk, load of the driver.

    python benchmarks/projection.py [--accelerators 100,1000] [--tflops 60] [--floor-us 100] [--budget 2] [--trials 100]

Nothing here is measured. Every study of ``published_studies.csv`` takes the steps that the published curves show
(``synthetic_workloads``), a trial ``--budget`` times as many, on one accelerator, at ``floor + batch size × FLOP of an
example / FLOP per second`` a step. Prices are those that come with batchscale.
"""

import argparse
import csv
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from synthetic_workloads import loss_model

from batchscale.planning.machines import read_price_list
from batchscale.run.disk import ROW_BYTES, TRIAL_BYTES

MACHINE = "azure NC24ads_A100_v4"
MEASUREMENTS = 421
"""Of a trial, as in the published archive: 71.6 million in 170,000 trials."""

JOB_S = 10.0
"""A trial's measurements come back about so often: one job of the driver."""

JOB_CPU_S = 0.0006
"""All processor time of the driver over its jobs, records included, as one run of ``scale.py`` had it."""

GFLOP = {
    "resnet_8": 0.075,
    "resnet_50": 24.6,
    "vgg_11": 45.7,
    "simple_cnn_narrow": 0.025,
    "simple_cnn_base": 0.083,
    "simple_cnn_wide": 0.3,
    "transformer_narrow_and_shallow": 1.9,
    "transformer_shallow": 4.4,
    "transformer_base": 6.9,
    "transformer_wide": 21.0,
    "lstm": 7.7,
}
"""Of one training example (a sentence of 32 words for language models): six per weight and position, counted roughly
from the shapes of the models. Those of the Simple CNNs, Transformers and the LSTM are the least certain."""


@dataclass(frozen=True)
class Published:
    """One study: the steps of its best trial, the GFLOP of an example, and the share of trials that diverged."""

    family: str
    batch_size: int
    steps: float
    gflop: float
    infeasible: float


def example_gflop(model: str) -> float:
    """The GFLOP of a training example."""
    if not model.startswith("fc_"):
        return GFLOP[model]
    widths = [784, *map(int, model.split("_")[1:]), 10]
    return 6e-9 * sum(before * after for before, after in pairwise(widths))


def read_studies() -> list[Published]:
    """The published studies."""
    studies = []
    with (Path(__file__).parent / "published_studies.csv").open() as file:
        for row in csv.DictReader(file):
            facts = loss_model(row["dataset"], row["model"], row["optimizer"])
            size, infeasible = int(row["batch_size"]), int(row["infeasible"])
            share = infeasible / max(1, infeasible + int(row["complete"]))
            steps = facts.steps + facts.examples / size
            studies.append(Published(row["model"], size, steps, example_gflop(row["model"]), share))
    return studies


def step_s(study: Published, tflops: float, floor_us: float) -> float:
    """The seconds of a step on one accelerator."""
    return floor_us * 1e-6 + study.batch_size * study.gflop / (1e3 * tflops)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accelerators", default="100,1000")
    parser.add_argument("--tflops", type=float, default=60.0)
    parser.add_argument("--floor-us", type=float, default=100.0)
    parser.add_argument("--budget", type=float, default=2.0, help="a trial's steps over those of the best")
    parser.add_argument("--trials", type=int, default=100)
    given = parser.parse_args()
    price = next(machine for machine in read_price_list() if machine.name == MACHINE)
    studies = read_studies()
    trials = sum(given.trials / (1 - min(0.9, study.infeasible)) for study in studies)
    print(f"{len(studies)} studies, {trials:,.0f} trials with those that diverge, {trials * MEASUREMENTS:,.0f} rows")
    print(f"disk {trials * (TRIAL_BYTES + ROW_BYTES * MEASUREMENTS) / 1e9:.1f} GB, {3 * trials:,.0f} files and folders")
    for rule, multiple in (("budget", given.budget), ("race", 1.0)):
        each = [multiple * study.steps * step_s(study, given.tflops, given.floor_us) for study in studies]
        total, longest = given.trials * sum(each), max(each)
        large = sum(s for s, study in zip(each, studies, strict=True) if study.gflop > 1) / sum(each)
        print(f"\n{rule}: {total / 3600:,.0f} accelerator hours ({large:.1%} of them ImageNet, Open Images, language), "
              f"{price.price_per_host_hour * total / 3600:,.0f} USD at {price.price_per_host_hour} an hour "
              f"({price.name}, {price.date}); the longest trial takes {longest / 3600:,.0f} h")  # fmt: skip
        for count in map(int, given.accelerators.split(",")):
            hours = max(total / count, longest) / 3600
            jobs = total / JOB_S + trials
            cpu = jobs * JOB_CPU_S
            print(f"  {count:5,} accelerators: {hours:9,.0f} h, {trials * MEASUREMENTS / (3600 * hours):8.1f} rows/s, "
                  f"{jobs / (3600 * hours):6.1f} jobs/s, driver {cpu / (3600 * hours):.2%} of a core")  # fmt: skip


if __name__ == "__main__":
    main()
