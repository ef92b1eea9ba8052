"""The processor time that measuring gradient noise takes, beside the rest of a trial.

    python benchmarks/gradient_noise.py [--pairs 8] [--cases fc_64_adam]

Trials with and without it are trained in turn in one process, after their programs are compiled. Two numbers: the time
of the calls that measure noise over that of all else in the same trials, and the ratio of whole trials with and without
(the median of pairs, their lowest and highest). On a busy machine single ratios scatter; the first number hardly does.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchscale.run.preflight import make_checked_plan
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import Experiment, WorkloadSpec
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.programs import Programs
from batchscale.training.study_engine import EngineSettings, StudyEngine, TrialTask
from batchscale.workloads.registry import get_workload


@dataclass(frozen=True)
class Case:
    """Trials that are trained together: their workload, batch size, steps, and how."""

    name: str
    batch_size: int = 64
    steps: int = 4096
    every: int = 64
    microbatch: int | None = None
    trials: int = 1


CASES = {
    "fc_64_sgd": Case("digits/fc_64/sgd"),
    "fc_64_adam": Case("digits/fc_64/adam"),
    "fc_64_adam_1024_steps": Case("digits/fc_64/adam", steps=1024),
    "fc_64_adam_batch_4": Case("digits/fc_64/adam", batch_size=4),
    "fc_64_adam_population": Case("digits/fc_64/adam", trials=8),
    "fc_64_muon": Case("digits/fc_64/muon"),
    "fc_64_accumulated": Case("digits/fc_64/sgd", 512, 640, microbatch=64),
    "fc_1024_sgd": Case("mnist/fc_1024/sgd", steps=1280),
    "fc_1024_adam": Case("mnist/fc_1024/adam", steps=1280),
}


def make_engine(case: Case, noise: bool, data_dir: Path | None) -> StudyEngine:
    """Return an engine that evaluates the validation set as the examples do, with or without the noise."""
    evaluation = EvaluationPlan(every=case.every, examples={"train": 0, "val": "all", "test": 0}, gradient_noise=noise)
    experiment = Experiment(
        workload=WorkloadSpec(WorkloadName.parse(case.name)),
        goal=Goal.parse("val/classification_error < 0.0"),
        batch_sizes=BatchSizes((case.batch_size,)),
        budget=Budget(case.steps, Unit.STEPS),
        evaluation=evaluation,
    )
    study = make_checked_plan(experiment, data_dir).studies[0]
    settings = EngineSettings(microbatch=case.microbatch)
    return StudyEngine(get_workload(experiment.workload, data_dir), study, evaluation, settings)


class Share:
    """The processor time of the calls that measure noise, in seconds."""

    def __init__(self) -> None:
        self.spent = 0.0
        name = "measure_noise"
        measure = getattr(Programs, name)

        def timed(programs: Programs, *arguments: Any) -> dict[str, float]:
            began = time.process_time()
            columns: dict[str, float] = measure(programs, *arguments)
            self.spent += time.process_time() - began
            return columns

        setattr(Programs, name, timed)


def train(engine: StudyEngine, case: Case, first: int) -> float:
    """Return the processor time in seconds of new trials from step 0 to their end."""
    tasks = [
        TrialTask(first + k, {"learning_rate": 0.001}, seed=first + k, until_step=case.steps, from_step=-1)
        for k in range(case.trials)
    ]
    began = time.process_time()
    engine.advance(tasks)
    return time.process_time() - began


def main() -> None:
    """Print the ratios of the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--cases", help=f"of {', '.join(CASES)}, with commas between them; all if left out")
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    share = Share()
    for name in given.cases.split(",") if given.cases else CASES:
        case = CASES[name]
        engines = [make_engine(case, noise, given.data_dir) for noise in (False, True)]
        for engine in engines:
            train(engine, case, 0)
        share.spent = 0.0
        times = []
        for pair in range(1, given.pairs + 1):
            seconds = [0.0, 0.0]
            for which in (0, 1) if pair % 2 else (1, 0):
                seconds[which] = train(engines[which], case, 1000 * pair)
            times.append(seconds)
        ratios = sorted(with_noise / without for without, with_noise in times)
        rest = sum(with_noise for _, with_noise in times) - share.spent
        print(
            f"{name:24} calls {share.spent / rest:.1%} of the rest; trials {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}) of {statistics.median(pair[0] for pair in times):.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
