"""The environment of workers: how many there are by default, what each may use, and the variables that say so."""

import contextlib
import os
import sys
from collections.abc import Iterator

from batchscale.machine import count_accelerators, count_cores, count_memory_bytes

MEMORY_SHARE = 0.8

_THREAD_VARIABLES = (
    "PJRT_NPROC",  # the size of XLA's pool of threads, which the flag below does not limit
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
PLACE_VARIABLE = "BATCHSCALE_PLACE"
"""Tells a worker its place among the workers of its machine, from 0."""

_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


def default_workers() -> int:
    """One worker per accelerator, or per core where there is none."""
    return count_accelerators() or count_cores()


def memory_limit(workers: int) -> int:
    """The bytes above which a worker is replaced by a fresh process: its share of 80 % of machine or container."""
    return int(MEMORY_SHARE * count_memory_bytes() / max(1, workers))


def worker_environment(place: int) -> dict[str, str]:
    """The environment of the worker at this place: one accelerator of its own, or one thread."""
    environment = dict(os.environ)
    # a worker finds the same modules as the driver, however that was started
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["PYTHONUNBUFFERED"] = "1"
    environment[PLACE_VARIABLE] = str(place)
    accelerators = count_accelerators()
    if accelerators:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(accelerators)))).split(",")
        environment["CUDA_VISIBLE_DEVICES"] = visible[place % len(visible)].strip()
        return environment
    return environment | single_threaded(environment.get("XLA_FLAGS", ""))


def single_threaded(xla_flags: str = "") -> dict[str, str]:
    """The variables that keep compute on one thread; what the user has set in XLA_FLAGS stays."""
    flags = xla_flags if "xla_cpu_multi_thread_eigen" in xla_flags else f"{xla_flags} {_ONE_THREAD}".strip()
    return {"XLA_FLAGS": flags, **dict.fromkeys(_THREAD_VARIABLES, "1")}


@contextlib.contextmanager
def computing_like_a_worker() -> Iterator[None]:
    """Inside, this process computes on one thread as a worker does, so that records are the same.

    The variables of the user come back at the end.
    """
    wanted = single_threaded(os.environ.get("XLA_FLAGS", ""))
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
