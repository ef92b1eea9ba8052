"""The machine that trials run on: cores, accelerators, memory, and the environment of a worker process."""

import errno
import math
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

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system answers when a disk, or a user's share of it, is full."""

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def count_cores() -> int:
    """The cores that this process may use; a container's share of processor time counts as so many, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [int(share) / int(period) for share, period in _read_groups(r"^(\d+) (\d+)$", "cpu.max")]
    return max(1, min(cores, *(math.ceil(share) for share in shares))) if shares else cores


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
    """The bytes above which a worker is replaced by a fresh process: its share of 80 % of machine or container."""
    limits = [int(limit) for (limit,) in _read_groups(r"^(\d+)$", "memory.max")]
    return int(0.8 * min([psutil.virtual_memory().total, *limits]) / max(1, workers))


def count_oom_kills() -> int:
    """How often the system has killed a process of our control group for want of memory; 0 where it does not say."""
    found = _read_groups(r"^oom_kill (\d+)$", "memory.events")
    return int(found[0][0]) if found else 0


def _read_groups(pattern: str, name: str) -> list[tuple[str, ...]]:
    """What a file says of our control group and those above it, innermost first; only version 2 of them is read."""
    try:
        group = re.search(r"^0::/(.*)$", OWN_GROUP.read_text(), re.MULTILINE)
    except OSError:
        group = None
    if group is None:
        return []
    found = []
    for folder in (GROUPS / group[1], *(GROUPS / group[1]).parents):
        try:
            match = re.search(pattern, (folder / name).read_text(), re.MULTILINE)
        except OSError:
            match = None
        if match:
            found.append(match.groups())
        if folder == GROUPS:
            break
    return found
