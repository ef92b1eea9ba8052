"""The machine that this process runs on: cores, memory, accelerators, processor. A container's limits count.

Loads nothing heavy, and is the only place that reads these from the system.
"""

import errno
import math
import os
import platform
import re
from pathlib import Path

import psutil

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of the system for a full disk or quota."""

HOST_DEVICES = "--xla_force_host_platform_device_count"
"""The flag of XLA that splits a processor into several devices."""

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
CPU_INFO = Path("/proc/cpuinfo")


def count_cores() -> int:
    """Return the number of cores that this process may use, limited by a container's share; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [int(share) / int(period) for share, period in _read_groups(r"^(\d+) (\d+)$", "cpu.max")]
    return max(1, min(cores, *(math.ceil(share) for share in shares))) if shares else cores


def count_memory_bytes() -> int:
    """Return the memory of the machine, or of the container if that is less."""
    limits = [int(limit) for (limit,) in _read_groups(r"^(\d+)$", "memory.max")]
    return min([int(psutil.virtual_memory().total), *limits])


def count_accelerators() -> int:
    """Return the number of GPUs that this process may use, without loading a library."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    if os.environ.get("JAX_PLATFORMS", "").startswith("cpu"):
        return 0
    try:
        return sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path("/dev").iterdir())
    except OSError:
        return 0


def count_devices() -> int:
    """Return the number of devices for trials: accelerators, or cores if there are none.

    A number of devices in XLA_FLAGS replaces the number of cores.
    """
    flags = re.findall(rf"{HOST_DEVICES}=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return count_accelerators() or (int(flags[-1]) if flags else count_cores())


def count_oom_kills() -> int:
    """Return the number of processes of our control group that ran out of memory; 0 if unknown."""
    counts = _read_groups(r"^oom_kill (\d+)$", "memory.events")
    return int(counts[0][0]) if counts else 0


def name_processor() -> str:
    """Return the name of the processor ("AMD EPYC 7B13"), or its architecture ("x86_64") if it has none."""
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", CPU_INFO.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        names = []
    return " ".join((names[0] if names else platform.processor() or platform.machine()).split())


def name_host() -> str:
    """Return the machine's name in its network."""
    return platform.node()


def describe_processor() -> tuple[str, ...]:
    """Return what compiled code depends on: architecture, then model and instruction sets."""
    try:
        lines = CPU_INFO.read_text().splitlines()
        features = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        features = [platform.processor()]
    return (platform.machine(), *features)


def _read_groups(pattern: str, name: str) -> list[tuple[str, ...]]:
    """Return the matches in a file of our control group and its parents, innermost first; cgroup version 2 only."""
    try:
        group = re.search(r"^0::/(.*)$", OWN_GROUP.read_text(), re.MULTILINE)
    except OSError:
        group = None
    if group is None:
        return []
    matches = []
    for folder in (GROUPS / group[1], *(GROUPS / group[1]).parents):
        try:
            match = re.search(pattern, (folder / name).read_text(), re.MULTILINE)
        except OSError:
            match = None
        if match:
            matches.append(match.groups())
        if folder == GROUPS:
            break
    return matches
