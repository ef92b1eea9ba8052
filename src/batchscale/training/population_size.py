"""The size of a population, chosen by measuring: once per (workload, batch size, machine), then kept on disk.

Mapping trials over slots pays where a step is so small that its overhead counts, and on accelerators that one trial
does not fill. It never pays where one step is a long computation on a CPU, so that is not even tried. A study so short
that measuring would cost more than it saves runs its trials alone.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import numpy as np

from batchscale.machine import count_cores
from batchscale.training.compilation import machine_id
from batchscale.training.state import TrialState
from batchscale.workloads.cache import cached

CANDIDATES = (4, 16, 64)
LEAST_GAIN = 1.15  # a larger population must be that much faster per trial: idle slots cost too
LONG_STEP_S = 2e-3
SHORT_STUDY_S = 60.0
MEASURE_S = 0.15


@dataclass(frozen=True)
class PopulationChoice:
    """A population size and the time of one step of one trial at each size that was measured."""

    population: int
    step_times_s: dict[str, float]


Measure = Callable[[int], float]
"""The seconds of one step of one trial in a population of so many slots."""


def choose_population(measure: Measure, trial_steps: int, most: int, accelerator: bool) -> PopulationChoice:
    """The best number of slots, at most ``most``, for a study of so many steps over all its trials."""
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


def measure_advance(advance: Callable[[int], None]) -> float:
    """The least seconds per step of ``advance(num_steps)``, compiled first and measured for a moment."""
    advance(1)
    steps, best = 1, float("inf")
    ends = time.perf_counter() + MEASURE_S
    while time.perf_counter() < ends:
        began = time.perf_counter()
        advance(steps)
        elapsed = time.perf_counter() - began
        best = min(best, elapsed / steps)
        steps = max(1, min(4 * steps, int(MEASURE_S / 5 / max(best, 1e-9))))
    return best


def choice_key(template: TrialState, *facts: object) -> str:
    """A short name of what is measured: the shapes of a trial's state, and facts such as batch size and precision."""
    device = jax.local_devices()[0]
    shapes = [f"{leaf.dtype}{np.shape(leaf)}" for leaf in jax.tree.leaves(template)]
    threads = [os.environ.get(name, "") for name in ("XLA_FLAGS", "PJRT_NPROC")]
    text = json.dumps([shapes, [str(fact) for fact in facts], device.device_kind, threads, count_cores()])
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def remembered(key: str, choose: Callable[[], PopulationChoice]) -> PopulationChoice:
    """The choice kept under the key, or a new one. The first to write wins, so that all workers agree."""
    path = cached("tuning", machine_id(), f"{key}.json")
    kept = _read(path)
    if kept is None:
        chosen = choose()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(json.dumps(asdict(chosen)))
        if path.exists() and _read(path) is None:
            path.unlink(missing_ok=True)  # damaged
        try:
            os.link(beside, path)  # unlike a rename, this fails where another worker was first
        except OSError:
            chosen = _read(path) or chosen
        beside.unlink(missing_ok=True)
        kept = chosen
    return kept


def _read(path: Path) -> PopulationChoice | None:
    try:
        found = json.loads(path.read_text())
        return PopulationChoice(int(found["population"]), dict(found["step_times_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
