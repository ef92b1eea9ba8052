"""The sizes of microbatches and populations that suit this machine.

A microbatch is bounded by the memory of one example, which is read off the traced program without compiling it, and by
the memory that a process may use. Both depend on the machine and the workload alone, never on what else is running: the
microbatch is part of a trial's float order.

The size of a population is measured once per (workload, batch size, machine) and stored. Mapping trials over slots pays
if a step is so small that its overhead counts, and on accelerators that one trial does not fill. It never pays if one
step is a long computation on a CPU, so that is not even tried. A study so short that measuring would cost more than it
saves runs its trials alone.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.machine import count_cores, count_memory_bytes
from batchscale.training.compilation import machine_id
from batchscale.training.state import TrialState
from batchscale.workloads.cache import cached
from batchscale.workloads.models.layers.conv import ordinary_products
from batchscale.workloads.workload import Batch, Workload

MEMORY_SHARE = 0.4
CACHE_BYTES = 64 * 2**20  # by the bound of `example_bytes`, several times what is in use at a time
PARAMETER_SHARE = 128
SMALL_BYTES = 64 * 2**10
SMALL_MICROBATCH = 64
MAX_EVALUATION_BATCH = 1024
CANDIDATES = (4, 16, 64)
LEAST_GAIN = 1.15  # a larger population must be that much faster per trial: idle slots cost too
LONG_STEP_S = 2e-3
SHORT_STUDY_S = 60.0
MEASURE_S = 0.15


def memory_bytes() -> int:
    """Return the limit for the arrays of one process: its share of the memory of the device, or of the machine."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(MEMORY_SHARE * stats["bytes_limit"])
    return int(MEMORY_SHARE * count_memory_bytes() / count_cores())


def example_bytes(workload: Workload, example: Batch) -> int:
    """Return an upper bound of the memory of one more example: every value of the forward pass, twice.

    The backward pass keeps some of them and makes one gradient of the same size each.
    """
    multiple = workload.model.microbatch_multiple
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, state = jax.eval_shape(workload.model.init, key)

    def total(count: int) -> int:
        # stands for any number of examples without holding them
        batch = {
            name: np.broadcast_to(np.asarray(values)[:1], (count, *np.shape(values)[1:]))
            for name, values in example.items()
        }

        def forward(params: Any, state: Any, batch: Any, key: Any) -> Any:
            prepared = workload.dataset.prepare(batch)
            return workload.model.apply(params, state, prepared["inputs"], train=True, key=key)

        with ordinary_products():  # other forms have more values, but only of a few examples at a time
            return _sum_sizes(jax.make_jaxpr(forward)(params, state, batch, key).jaxpr)

    return max(1, 2 * (total(2 * multiple) - total(multiple)) // multiple)


def _sum_sizes(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        inner = [value for value in equation.params.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
        if inner:
            total += sum(_sum_sizes(getattr(value, "jaxpr", value)) for value in inner)
        else:
            total += sum(_size(out.aval) for out in equation.outvars)
    return total


def _size(aval: Any) -> int:
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", jnp.float32)
    return int(np.prod(shape, dtype=np.int64)) * int(getattr(dtype, "itemsize", 4))


def microbatch_bytes(slots: int, parameter_bytes: int) -> int:
    """Return the limit for a microbatch of one member of a population: its share of memory, on a CPU often less.

    On a CPU a step is quicker in microbatches whose values stay in the cache. Each adds its gradient to a sum, so one
    must be large beside the parameters (decision 0042).
    """
    share = memory_bytes() // slots
    if jax.default_backend() != "cpu":
        return share
    return min(share, max(CACHE_BYTES, PARAMETER_SHARE * parameter_bytes))


def is_small(parameter_bytes: int) -> bool:
    """Return True for a model whose batches are trained in microbatches of ``SMALL_MICROBATCH`` on a CPU.

    One compiled program then trains all larger batch sizes. It is slower by a fifth at most, and such a model is
    trained for less time than a second program takes to compile.
    """
    return parameter_bytes <= SMALL_BYTES and jax.default_backend() == "cpu"


def choose_microbatch(batch_size: int, multiple: int, bytes_per_example: int, available: int) -> int:
    """Return the whole batch if it fits, otherwise the largest power of two times ``multiple`` that does.

    >>> choose_microbatch(1000, 32, bytes_per_example=10, available=10_000)
    1000
    >>> choose_microbatch(1000, 32, bytes_per_example=100, available=10_000)
    64
    """
    fitting = available // max(1, bytes_per_example)
    if batch_size <= fitting:
        return batch_size
    size = multiple
    while 2 * size <= fitting:
        size *= 2
    return min(size, batch_size)


@dataclass(frozen=True)
class PopulationChoice:
    """A population size and the time of one step of one trial at each size that was measured."""

    population: int
    step_times_s: dict[str, float]


Measure = Callable[[int], float]
"""Returns the seconds of one step of one trial in a population of this many slots."""


def choose_population(measure: Measure, trial_steps: int, most: int, accelerator: bool) -> PopulationChoice:
    """Return the best number of slots, at most ``most``, for a study of ``trial_steps`` steps over all trials."""
    times = {1: measure(1)}
    long_step = times[1] > LONG_STEP_S and not accelerator
    if long_step or times[1] * trial_steps < SHORT_STUDY_S:
        return PopulationChoice(1, {"1": times[1]})
    best = 1
    for slots in CANDIDATES:
        if slots > most:
            break
        times[slots] = measure(slots)
        if times[slots] * LEAST_GAIN > times[best]:
            break
        best = slots
    return PopulationChoice(best, {str(slots): seconds for slots, seconds in times.items()})


def measure_advance(advance: Callable[[int], None], trial_steps: int) -> float:
    """Return the least seconds per step of ``advance(num_steps)``, which is compiled before it is measured.

    A study of so many steps that is clearly short is not measured any longer.
    """
    advance(1)
    steps, best = 1, float("inf")
    ends = time.perf_counter() + MEASURE_S
    while time.perf_counter() < ends and best * trial_steps > SHORT_STUDY_S / 4:
        began = time.perf_counter()
        advance(steps)
        elapsed = time.perf_counter() - began
        best = min(best, elapsed / steps)
        steps = max(1, min(4 * steps, int(MEASURE_S / 5 / max(best, 1e-9))))
    return best


def choice_key(template: TrialState, *facts: object) -> str:
    """Return a hash of what is measured: the shapes of a state, and facts such as batch size and precision."""
    device = jax.local_devices()[0]
    shapes = [f"{leaf.dtype}{np.shape(leaf)}" for leaf in jax.tree.leaves(template)]
    threads = [os.environ.get(name, "") for name in ("XLA_FLAGS", "PJRT_NPROC")]
    text = json.dumps([shapes, [str(fact) for fact in facts], device.device_kind, threads, count_cores()])
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def load_or_choose(key: str, choose: Callable[[], PopulationChoice]) -> PopulationChoice:
    """Return the stored choice of the key, or a new one. The first to write wins, so that all workers agree."""
    path = cached("tuning", machine_id(), f"{key}.json")
    stored = _read(path)
    if stored is not None:
        return stored
    choice = choose()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(asdict(choice)))
    if path.exists() and _read(path) is None:
        path.unlink(missing_ok=True)  # damaged
    try:
        os.link(beside, path)  # unlike a rename, this fails if another worker was first
    except OSError:
        choice = _read(path) or choice
    beside.unlink(missing_ok=True)
    return choice


def _read(path: Path) -> PopulationChoice | None:
    try:
        data = json.loads(path.read_text())
        return PopulationChoice(int(data["population"]), dict(data["step_times_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
