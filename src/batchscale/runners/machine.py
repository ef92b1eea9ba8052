"""The machine that trials run on: cores, accelerators, memory, and the environment of a worker process."""

import os
import re
import sys
from pathlib import Path

import psutil

_THREAD_VARIABLES = (
    "PJRT_NPROC",  # the size of XLA's pool of threads, which the flag below does not limit
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


def count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_accelerators() -> int:
    """The GPUs that this process may use, without loading anything."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return 0
    try:
        return sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path("/dev").iterdir())
    except OSError:
        return 0


def default_workers() -> int:
    """One worker per accelerator, or per core where there is none."""
    return count_accelerators() or count_cores()


def worker_environment(place: int) -> dict[str, str]:
    """The environment of the worker at this place: one accelerator of its own, or one thread."""
    environment = dict(os.environ)
    # a worker finds the same modules as the driver, however that was started
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["PYTHONUNBUFFERED"] = "1"
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


def memory_limit(workers: int) -> int:
    """The bytes above which a worker is replaced by a fresh process: its fair share of four fifths of the machine."""
    return int(0.8 * psutil.virtual_memory().total / max(1, workers))


def count_oom_kills() -> int:
    """How often the system has killed a process of our control group for want of memory; 0 where it does not say."""
    try:
        group = Path("/proc/self/cgroup").read_text().strip().rpartition("::")[2]
        events = Path(f"/sys/fs/cgroup/{group}/memory.events").read_text()
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", events, re.MULTILINE)
    return int(found[1]) if found else 0
