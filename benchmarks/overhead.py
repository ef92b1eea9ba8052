"""What driver and record keeping cost beside training: 1,000 short trials, and the driver's memory on the way.

    python benchmarks/overhead.py [--trials 1000] [--trial-s 1.0] [--out overhead.json]

Trials here only wait (``--trial-s`` each), many at once, so that the driver can be seen alone: its processor time and
the time it spends writing are set against the time of the trials. The same run with a tenth of the trials shows whether
its memory grows with them.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

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

NAME = WorkloadName("waiting", "model", "sgd")
SPACE = SearchSpace((ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-4, 1.0, Scale.LOG),))
WORKERS = 8  # they only wait: eight at once on any machine


class WaitingEngine:
    """Trials that take a given time and report 100 measurements of two metrics."""

    population_size = 1

    def __init__(self, setup: Setup, study: Study, _population: int | None) -> None:
        self._study = study
        self._trial_s = float(setup.options["trial_s"])

    def advance(self, tasks, should_stop, goal):
        """Wait as long as the steps asked for take."""
        del should_stop, goal
        return [self._advance(task) for task in tasks]

    def _advance(self, task):
        steps = [s for s in self._study.evaluation_steps if task.from_step < s <= task.until_step]
        time.sleep(self._trial_s * (task.until_step - max(0, task.from_step)) / self._study.train_steps)
        rows = tuple((s, {"val/error": 1 / (1 + s), "train/error": 1 / (2 + s)}) for s in steps)
        return TrialProgress(task.trial_id, rows, task.until_step, None, {})

    def save(self, trial_id):
        """Nothing to save."""

    def finish(self, trial_id, step):
        """Nothing to keep."""

    def discard(self, trial_id):
        """Nothing to discard."""


def make_engine(setup: Setup, study: Study, population: int | None) -> WaitingEngine:
    """The engine that workers load by this module's name."""
    return WaitingEngine(setup, study, population)


def make_waiting_plan(trials: int, stop: StopRule):
    """Five studies that share the trials."""
    experiment = Experiment(
        workload=WorkloadSpec(NAME),
        goal=Goal.parse("val/error < 0.0001"),
        batch_sizes=BatchSizes((1, 2, 4, 8, 16)),
        trials=trials // 5,
        budget=Budget(1000, Unit.STEPS),
        evaluation=EvaluationPlan(count=100),
        stop=stop,
        search=SearchPlan(repeats=0),
    )
    facts = WorkloadInfo(NAME, {"error": False}, 1000, {"learning_rate": None}, lambda _steps: SPACE)
    return make_plan(experiment, facts)


def measure(trials: int, trial_s: float, stop: StopRule) -> dict[str, float | int | str]:
    """One run: times of the driver against times of the trials, and the driver's memory."""
    process = psutil.Process()
    memory: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.25):
            memory.append(process.memory_info().rss)

    with tempfile.TemporaryDirectory() as folder:
        settings = RunSettings(workers=WORKERS, engine="overhead:make_engine", engine_options={"trial_s": str(trial_s)})
        before, began = process.cpu_times(), time.monotonic()
        threading.Thread(target=watch, daemon=True).start()
        outcome = run_plan(make_waiting_plan(trials, stop), Path(folder), settings)
        wall = time.monotonic() - began
        ended.set()
        after = process.cpu_times()
    trained_s = sum(study.seconds for study in outcome.status.studies)
    cpu_s = after.user + after.system - before.user - before.system
    start = memory[len(memory) // 5]
    return {
        "stop": stop.value,
        "trials": sum(study.complete for study in outcome.status.studies),
        "trial_time_s": round(trained_s, 2),
        "wall_s": round(wall, 2),
        "loop_busy_s": round(outcome.loop_busy_s, 2),
        "driver_cpu_s": round(cpu_s, 2),
        "overhead": round(outcome.loop_busy_s / trained_s, 5),
        "memory_growth_mb": round((memory[-1] - start) / 2**20, 1),
        "memory_mb": round(max(memory) / 2**20, 1),
    }


def main() -> None:
    """Print the table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--trial-s", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # workers find this module by name
    import scipy.stats  # noqa: F401 - loaded once per run whatever its size; not what is measured here

    found = [
        measure(trials, arguments.trial_s, stop)
        for stop in (StopRule.BUDGET, StopRule.RACE)
        for trials in (arguments.trials // 10, arguments.trials)
    ]
    for row in found:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
