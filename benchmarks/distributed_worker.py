"""One process of a trial in the benchmark of data parallelism: answers JSON requests on standard input, on one core."""

import json
import os
import sys
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
from engine_cases import CASES
from engine_worker import make_workload


class Trial:
    """A trial of the case at a batch size over all devices of all processes."""

    def __init__(self, case: str, batch_size: int) -> None:
        import jax

        from batchscale.spec.durations import EvaluationPlan
        from batchscale.spec.experiment import StopRule
        from batchscale.spec.goal import Goal
        from batchscale.spec.plan import Study
        from batchscale.spec.space import SearchSpace
        from batchscale.training.programs import Programs
        from batchscale.training.settings import EngineSettings

        workload = make_workload(CASES[case])
        study = Study(
            workload.name, batch_size, 10**6, (0, 10**6), SearchSpace(), {}, 64, 64,
            Goal("val/cross_entropy_error", 0.0), StopRule.BUDGET, 0,
        )  # fmt: skip
        settings = EngineSettings(population=1, devices=None)
        self._programs = Programs(workload, study, EvaluationPlan(examples={"val": 64}), settings)
        state = self._programs.init(0, {"learning_rate": 1e-4, "momentum": 0.9})
        self._population = self._programs.populate(state, 1)
        self._until = np.full(1, 2**31 - 1, np.int32)
        self.num_parameters = sum(leaf.size for leaf in jax.tree.leaves(state.params))
        self.advance(1)

    def advance(self, steps: int) -> tuple[float, float]:
        """Seconds of one step, and those of them that this process computed."""
        began, computed = time.perf_counter(), time.process_time()
        self._population = self._programs.advance(self._population, self._until, steps)
        return (time.perf_counter() - began) / steps, (time.process_time() - computed) / steps

    def exchange(self, times: int) -> float:
        """Seconds of adding up a gradient's worth of numbers over all devices."""
        import jax

        from batchscale.training.devices import EVERYWHERE, add_up

        def repeat(values: Any) -> Any:
            return jax.lax.fori_loop(0, times, lambda _, found: add_up(found) * 0.5, values)

        devices = self._programs.devices
        if not devices.several:
            return 0.0
        program = jax.jit(devices.on_each(repeat, (EVERYWHERE,)))
        values = devices.replicate(np.ones(self.num_parameters, np.float32))
        program(values).block_until_ready()
        began = time.perf_counter()
        program(values).block_until_ready()
        return (time.perf_counter() - began) / times


def main(core: int, cluster: str) -> None:
    """Answer requests: begin a trial, time its steps, time its exchange."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    from batchscale.training.hosts import joined
    from batchscale.workers.multihost.cluster import read_cluster
    from batchscale.workers.multihost.hosts import connect

    with ExitStack() as stack:
        described = None if cluster == "none" else read_cluster(cluster)
        if described is not None:
            stack.enter_context(joined(connect(described, {})))
        trial: Trial | None = None
        for line in sys.stdin:
            request = json.loads(line)
            if "case" in request:
                trial = Trial(request["case"], request["batch_size"])
                answer: dict[str, float] = {"parameters": trial.num_parameters}
            else:
                assert trial is not None
                step, computed = trial.advance(request["steps"])
                answer = {"step": step, "computed": computed}
                if request.get("exchange"):
                    answer["exchange"] = trial.exchange(request["steps"])
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
