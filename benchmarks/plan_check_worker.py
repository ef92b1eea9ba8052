"""One process of `plan_check.py`, on one core: times steps and trains a trial, alone or together with the others.

Answers JSON requests on standard input. All processes of a world get the same requests and take the same steps.
"""

import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any


class Worker:
    """The workload of an experiment, and what is asked of it."""

    def __init__(self, experiment: Path, data_dir: Path | None, hosts: Any) -> None:
        from batchscale.spec.file import read_experiment
        from batchscale.training.settings import EngineSettings
        from batchscale.workloads.registry import get_workload

        self.experiment, self.hosts = read_experiment(experiment), hosts
        self.workload = get_workload(self.experiment.workload, data_dir)
        self.settings = EngineSettings(population=1, devices=None)
        self._advances: dict[int, Any] = {}

    def time(self, batch_size: int, steps: int) -> dict[str, float]:
        """Seconds of a step, compiled before."""
        from batchscale.training.calibration import make_advance

        if batch_size not in self._advances:
            self._advances[batch_size] = make_advance(self.workload, batch_size, self.settings)
            self._advances[batch_size](steps)
        began = time.perf_counter()
        self._advances[batch_size](steps)
        return {"step_time_s": (time.perf_counter() - began) / steps}

    def train(self, **asked: Any) -> dict[str, float]:
        """Steps and seconds of a trial up to the goal; seconds to start, and of one evaluation."""
        from batchscale.run.single_trial import SingleTrial
        from batchscale.spec.durations import EvaluationPlan

        trial = SingleTrial(
            batch_size=asked["batch_size"],
            steps=asked["steps"],
            parameters=asked["parameters"],
            evaluation=EvaluationPlan(every=asked["every"], examples=self.experiment.evaluation.examples),
            seed=asked["seed"],
            early_stop=self.experiment.goal,
            settings=self.settings,
        )
        took = {}
        for every in (1, 1, 10):  # the first compiles
            plan = EvaluationPlan(every=every, examples=trial.evaluation.examples)
            took[every] = self._timed(replace(trial, steps=10, evaluation=plan, early_stop=None))[1]
        steps, seconds = self._timed(trial)
        evaluation_s = max(took[1] - took[10], 0.0) / 9
        return {"steps": steps, "seconds": seconds, "startup_s": took[10], "evaluation_s": evaluation_s}

    def _timed(self, trial: Any) -> tuple[int, float]:
        from batchscale.run.single_trial import train_single

        began = time.perf_counter()
        outcome = train_single(self.workload, trial, lambda *_: None, lambda: False, self.hosts)
        return outcome.steps, time.perf_counter() - began


def main(core: int, cluster: str, experiment: str, data_dir: str) -> None:
    """Answer requests until there are no more."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})
    from batchscale.training.hosts import joined
    from batchscale.workers.multihost.cluster import read_cluster
    from batchscale.workers.multihost.hosts import connect

    with ExitStack() as stack:
        hosts = None
        if cluster != "none":
            hosts = connect(read_cluster(cluster), {})
            stack.enter_context(joined(hosts))
        worker = Worker(Path(experiment), Path(data_dir) if data_dir else None, hosts)
        for line in sys.stdin:
            request = json.loads(line)
            answer = getattr(worker, request.pop("do"))(**request)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
