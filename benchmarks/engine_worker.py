"""One process of the engine in its benchmark: answers JSON requests on standard input, on one core."""

import json
import os
import sys
import time
from typing import Any

import numpy as np
from engine_cases import CASES, Case


def make_workload(case: Case) -> Any:
    """The real workload of the case, on random data."""
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.spec.workload_name import WorkloadName
    from batchscale.workloads.registry import get_workload
    from batchscale.workloads.workload import ArraySplit, Dataset

    rng = np.random.default_rng(0)
    words = case.words
    shape = (case.num_examples, *case.shape)
    inputs = rng.integers(0, 256, shape).astype(np.int32 if words else np.uint8)
    labels = np.roll(inputs, -1, axis=1) if words else rng.integers(0, 10, case.num_examples).astype(np.int32)
    arrays = {"inputs": inputs, "labels": labels}
    of_tokens = dict.fromkeys(("mask", "bytes"), np.ones(shape, np.float32)) if words else {}  # for the metrics alone
    train, val = ArraySplit(arrays), ArraySplit(arrays | of_tokens)
    prepare = (lambda batch: batch) if words else _scale
    dataset = Dataset(
        "bench", {"train": train, "val": val}, prepare, case.shape, inputs.dtype if words else np.float32,
        case.num_outputs,
    )  # fmt: skip
    options: dict[str, Any] = {"dropout": case.dropout}
    names = {"fc": "fc_" + "_".join(map(str, case.widths)), "cnn": "simple_cnn_base", "transformer": "transformer_base"}
    model = names.get(case.kind, case.name)
    if words:
        width, filter_width, layers = case.widths
        options |= {"width": width, "filter_width": filter_width, "layers": layers, "heads": case.heads}
    name = WorkloadName("lm1b" if words else "mnist", model, "nesterov_momentum")
    return get_workload(WorkloadSpec(name, model_options=options, schedule="constant"), dataset=dataset)


def _scale(batch: Any) -> Any:
    return {**batch, "inputs": batch["inputs"].astype(np.float32) / 255}


class Contestant:
    """A population of the case at a batch size, as the engine would run it."""

    def __init__(self, case: Case, batch_size: int) -> None:
        import jax

        from batchscale.spec.durations import EvaluationPlan
        from batchscale.spec.experiment import StopRule
        from batchscale.spec.goal import Goal
        from batchscale.spec.plan import Study
        from batchscale.spec.space import SearchSpace
        from batchscale.training.programs import Programs
        from batchscale.training.settings import EngineSettings

        workload = make_workload(case)
        study = Study(
            workload.name, batch_size, 10**6, (0, 10**6), SearchSpace(), {}, 64, 64,
            Goal("val/cross_entropy_error", 0.0), StopRule.BUDGET, 0,
        )  # fmt: skip
        plan = EvaluationPlan(examples={"val": 64})
        self._programs = Programs(workload, study, plan, EngineSettings())
        self.slots = self._programs.slots
        state = self._programs.init(0, {"learning_rate": 1e-3, "momentum": 0.9})
        self._population = self._programs.populate(state, self.slots)
        self._until = np.full(self.slots, 2**31 - 1, np.int32)
        self.advance(2)
        params = jax.tree.leaves(state.params)
        self.facts = {
            "population": self.slots,
            "flops": matmul_flops(workload, batch_size),
            "bytes": 5 * 4 * sum(leaf.size for leaf in params),  # read and update parameters, update momentum
        }

    def advance(self, steps: int) -> None:
        self._population = self._programs.advance(self._population, self._until, steps)
        assert (np.asarray(self._population.diverged_at) == -1).all()


def matmul_flops(workload: Any, batch_size: int) -> float:
    """The floating-point operations of the matrix products of one step, counted in the traced gradient."""
    import jax

    from batchscale.training.step_work import product_flops
    from batchscale.workloads.models.layers.conv import ordinary_products

    train = workload.dataset.splits["train"]
    batch = {name: values[:1].repeat(batch_size, 0) for name, values in train.arrays.items()}
    params, state = jax.eval_shape(workload.model.init, jax.random.key(0))

    def loss(params: Any, state: Any, batch: Any) -> Any:
        prepared = workload.dataset.prepare(batch)
        outputs, _ = workload.model.apply(params, state, prepared["inputs"], train=True, key=jax.random.key(0))
        return workload.loss(outputs, prepared, {}).total

    with ordinary_products():  # the roofline is that of the model's products, however few of them a form needs
        return product_flops(jax.grad(loss), params, state, batch)


def measure(contestant: Any, seconds: float) -> float:
    """Core-seconds of one step of one trial: processor time of this process, which other processes do not lengthen."""
    steps = 1
    while True:
        began = time.process_time()
        contestant.advance(steps)
        spent = time.process_time() - began
        if spent >= seconds / 2:
            return spent / steps / contestant.slots
        steps = max(steps + 1, int(steps * min(20, seconds / max(spent, 1e-4))))


def measure_machine() -> dict[str, float]:
    """The best matrix product throughput and memory bandwidth of one core, measured here."""
    import jax
    import jax.numpy as jnp

    best_flops, best_bytes = 0.0, 0.0
    for size in (512, 1024):
        a = np.ones((size, size), np.float32)
        product = jax.jit(lambda x: x @ x)
        device = jnp.asarray(a)
        for call in (lambda a=a: a @ a, lambda d=device, p=product: p(d).block_until_ready()):
            best_flops = max(best_flops, 2 * size**3 / _least(call))
    for megabytes in (4, 64):
        source = np.ones(megabytes * 2**20 // 4, np.float32)
        target = np.empty_like(source)
        best_bytes = max(best_bytes, 2 * source.nbytes / _least(lambda s=source, t=target: np.copyto(t, s)))
    return {"gemm_flops": best_flops, "bandwidth": best_bytes}


def _least(call: Any) -> float:
    call()
    best = float("inf")
    for _ in range(12):
        began = time.process_time()
        for _ in range(4):
            call()
        best = min(best, (time.process_time() - began) / 4)
    return best


def serve(make: Any) -> None:
    """Answer requests: {"prepare": case, "batch_size": n} → facts, {"measure": seconds} → core-seconds per step."""
    contestant: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                contestant = None
                contestant = make(CASES[request["prepare"]], request["batch_size"], **request.get("options", {}))
                answer = getattr(contestant, "facts", {})
            elif "machine" in request:
                answer = measure_machine()
            else:
                answer = {"step_s": measure(contestant, request["measure"])}
        except Exception as error:  # noqa: BLE001 - a contestant that fails is a result of the benchmark
            answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(sys.argv[1])})
    from batchscale.training.compilation import use_compilation_cache

    use_compilation_cache()
    serve(Contestant)
