"""What the Ray runner costs beside the local one: the same trials on the same cores, in turn, as a ratio of times.

    python benchmarks/ray_overhead.py [--trials 8] [--trial-s 10] [--rounds 4] [--out ray_overhead.json]

Trials here compute checksums, so that Ray's own processes compete with them for the cores as they do with real ones. A
run's time is what its workers spend from the start of their first trial to the end of their last, waits between trials
included: starting a cluster is left out, and so is a last trial that leaves the other worker nothing
to do. Machines are not equally fast from minute to minute, by more than what is measured here: time is therefore
counted per second of processor time that the trials' own work took. Needs the extra `[ray]`; eight runs of 40 s on two
cores, and their starts.
"""

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from batchscale.machine import count_cores
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import Experiment, SearchPlan, StopRule, WorkloadSpec
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study, WorkloadInfo, make_plan
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace
from batchscale.spec.workload_name import WorkloadName
from batchscale.study.trial import TrialProgress
from batchscale.workers.runner import Setup

NAME = WorkloadName("checksums", "model", "sgd")
SPACE = SearchSpace((ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-4, 1.0, Scale.LOG),))
STEPS = 100
BLOCK = bytes(2**20)


class ComputingEngine:
    """Trials that take a fixed amount of work a step and note when they began and ended."""

    population_size = 1

    def __init__(self, setup: Setup, study: Study, _population: int | None) -> None:
        self._study = study
        self._blocks = int(setup.options["blocks"])
        self._log = Path(setup.options["log"])

    def advance(self, tasks, should_stop, goal):
        """Do the work of the steps asked for."""
        del should_stop, goal
        return [self._advance(task) for task in tasks]

    def _advance(self, task):
        began, used = time.monotonic(), time.thread_time()
        work(self._blocks * (task.until_step - max(0, task.from_step)))
        with self._log.open("a") as log:
            log.write(f"{os.getpid()} {began} {time.monotonic()} {time.thread_time() - used}\n")
        steps = [s for s in self._study.evaluation_steps if task.from_step < s <= task.until_step]
        rows = tuple((s, {"val/error": 1 / (1 + s), "train/error": 1 / (2 + s)}) for s in steps)
        return TrialProgress(task.trial_id, rows, task.until_step, None, {})

    def save(self, trial_id):
        """Nothing to save."""

    def finish(self, trial_id, step):
        """Nothing to keep."""

    def discard(self, trial_id):
        """Nothing to discard."""


def make_engine(setup: Setup, study: Study, population: int | None) -> ComputingEngine:
    """The engine that workers load by this module's name."""
    return ComputingEngine(setup, study, population)


def work(blocks: int) -> None:
    """So many checksums."""
    for _ in range(blocks):
        hashlib.sha256(BLOCK).digest()


def blocks_per_step(trial_s: float) -> int:
    """The work of a step with which a trial takes about this long here."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        work(200)
        times.append((time.perf_counter() - began) / 200)
    return max(1, round(trial_s / STEPS / statistics.median(times)))


def make_computing_plan(trials: int):
    """One study of the trials, with ten measurements each."""
    experiment = Experiment(
        workload=WorkloadSpec(NAME),
        goal=Goal.parse("val/error < 0.0001"),
        batch_sizes=BatchSizes((1,)),
        trials=trials,
        budget=Budget(STEPS, Unit.STEPS),
        evaluation=EvaluationPlan(count=10),
        stop=StopRule.BUDGET,
        search=SearchPlan(repeats=0),
    )
    facts = WorkloadInfo(NAME, {"error": False}, 1000, {"learning_rate": None}, lambda _steps: SPACE)
    return make_plan(experiment, facts)


class Span(NamedTuple):
    """One piece of a trial's work, as its worker noted it."""

    worker: int
    began: float
    ended: float
    processor_s: float

    @classmethod
    def parse(cls, line: str) -> "Span":
        """A line of the log."""
        worker, began, ended, processor_s = line.split()
        return cls(int(worker), float(began), float(ended), float(processor_s))


def measure(runner: str, trials: int, blocks: int, workers: int) -> dict[str, float | str]:
    """One run: what its workers spent on the trials, by the clock and of the processor, and the wait for the first."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        options = {"blocks": str(blocks), "log": str(log)}
        settings = RunSettings(runner, workers, engine="ray_overhead:make_engine", engine_options=options)
        began = time.monotonic()
        run_plan(make_computing_plan(trials), Path(folder) / "out", settings)
        spans = [Span.parse(line) for line in log.read_text().splitlines()]
    by_worker = {worker: [s for s in spans if s.worker == worker] for worker in {s.worker for s in spans}}
    workers_s = sum(max(s.ended for s in own) - min(s.began for s in own) for own in by_worker.values())
    busy_s = sum(s.ended - s.began for s in spans)
    processor_s = sum(s.processor_s for s in spans)
    return {
        "runner": runner,
        "start_s": round(min(s.began for s in spans) - began, 2),
        "workers_s": round(workers_s, 3),
        "busy_s": round(busy_s, 3),
        "processor_s": round(processor_s, 3),
        "waiting": round(1 - busy_s / workers_s, 5),
        "per_processor_s": round(workers_s / processor_s, 5),
    }


@contextlib.contextmanager
def local_cluster(num_cpus: int) -> Iterator[None]:
    """A Ray cluster of this machine, which the runner finds by Ray's own means."""
    import ray

    path = {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}}
    ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, log_to_driver=False, runtime_env=path)
    try:
        yield
    finally:
        ray.shutdown()


def main() -> None:
    """Print the runs and the ratio, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--trial-s", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=count_cores())
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # workers find this module by name
    blocks = blocks_per_step(arguments.trial_s)
    found = []
    for _ in range(arguments.rounds):
        for runner in ("local", "ray"):
            with local_cluster(arguments.workers) if runner == "ray" else contextlib.nullcontext():
                found.append(measure(runner, arguments.trials, blocks, arguments.workers))
            print("  ".join(f"{key} {value}" for key, value in found[-1].items()), flush=True)
    costs = {name: [row["per_processor_s"] for row in found if row["runner"] == name] for name in ("local", "ray")}
    pairs = [ray / local - 1 for local, ray in zip(costs["local"], costs["ray"], strict=True)]
    overhead = statistics.median(pairs)
    print(f"overhead of ray over local: {overhead:+.2%} of trial time ({min(pairs):+.2%} to {max(pairs):+.2%})")
    if arguments.out:
        arguments.out.write_text(json.dumps({"runs": found, "pairs": [round(p, 5) for p in pairs]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
