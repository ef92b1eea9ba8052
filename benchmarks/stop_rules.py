"""What the stop rules cost: the quickstart's workload with ``budget``, ``goal`` and ``race`` over the same trials.

    python benchmarks/stop_rules.py [--trials 12] [--finishers 1] [--batch-sizes 4 64 512]

Prints, as a Markdown table, the trial-steps trained under each rule, those beyond a trial's end included, and checks
that all rules give the same steps to result at every batch size.
"""

import argparse
import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import run_plan
from batchscale.run.status import StudyStatus
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.experiment import Experiment, StopRule
from batchscale.spec.file import parse_experiment

RULES = (StopRule.BUDGET, StopRule.GOAL, StopRule.RACE)


def quickstart_experiment(trials: int, finishers: int, batch_sizes: list[int]) -> Experiment:
    """The quickstart's experiment with fewer trials and batch sizes, without confirmation."""
    text = (resources.files("batchscale.cli") / "quickstart_files" / "digits.toml").read_text()
    whole = parse_experiment(text)
    return replace(whole, trials=trials, finishers=finishers, confirm=0, batch_sizes=BatchSizes(tuple(batch_sizes)))


def measure(experiment: Experiment, rule: StopRule) -> tuple[StudyStatus, ...]:
    """The studies of a finished run under a rule."""
    with tempfile.TemporaryDirectory() as folder:
        plan = make_checked_plan(replace(experiment, stop=rule), None)
        return run_plan(plan, Path(folder)).status.studies


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--finishers", type=int, default=1)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[8, 64, 512])
    given = parser.parse_args()
    experiment = quickstart_experiment(given.trials, given.finishers, given.batch_sizes)
    found = {rule: measure(experiment, rule) for rule in RULES}
    steps = {rule: {study.batch_size: study.best_steps for study in studies} for rule, studies in found.items()}
    if any(answer != steps[StopRule.BUDGET] for answer in steps.values()):
        raise SystemExit(f"The rules must give the same steps to result. Found {steps}.")
    print("Steps to result: " + ", ".join(f"{b:,} at {a:,}" for a, b in steps[StopRule.RACE].items()))
    print("| | " + " | ".join(f"{size:,}" for size in given.batch_sizes) + " | all | saved |")
    print("|---|" + "---:|" * (len(given.batch_sizes) + 2))
    most = sum(study.trial_steps for study in found[StopRule.BUDGET])
    for rule, studies in found.items():
        total = sum(study.trial_steps for study in studies)
        cells = [*(f"{study.trial_steps:,}" for study in studies), f"{total:,}", f"{1 - total / most:.0%}"]
        print(f"| `{rule.value}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
