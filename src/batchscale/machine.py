"""The machine that this process runs on: cores, memory, accelerators, processor. A container's limits count.

Loads nothing heavy, and is the only place that asks the system for these.
"""

import errno
import math
import os
import platform
import re
from pathlib import Path

import psutil

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system answers when a disk, or a user's share of it, is full."""

HOST_DEVICES = "--xla_force_host_platform_device_count"
"""The flag of XLA that makes several devices of a processor."""

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
CPU_INFO = Path("/proc/cpuinfo")


def count_cores() -> int:
    """The cores that this process may use; a container's share of processor time counts as so many, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [int(share) / int(period) for share, period in _read_groups(r"^(\d+) (\d+)$", "cpu.max")]
    return max(1, min(cores, *(math.ceil(share) for share in shares))) if shares else cores


def count_memory_bytes() -> int:
    """The memory that all processes here may use together: the machine's, or the container's where that is less."""
    limits = [int(limit) for (limit,) in _read_groups(r"^(\d+)$", "memory.max")]
    return min([int(psutil.virtual_memory().total), *limits])


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


def count_devices() -> int:
    """The devices that trials may be trained on: accelerators, or cores where there are none.

    Whoever tells XLA to offer a number of devices on the processor means that number.
    """
    told = re.findall(rf"{HOST_DEVICES}=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return count_accelerators() or (int(told[-1]) if told else count_cores())


def count_oom_kills() -> int:
    """How often the system has killed a process of our control group for want of memory; 0 where it does not say."""
    found = _read_groups(r"^oom_kill (\d+)$", "memory.events")
    return int(found[0][0]) if found else 0


def name_processor() -> str:
    """The processor's own name ("AMD EPYC 7B13"), or its kind where the system does not tell ("x86_64")."""
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", CPU_INFO.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        names = []
    return " ".join((names[0] if names else platform.processor() or platform.machine()).split())


def name_host() -> str:
    """The machine's name in its network."""
    return platform.node()


def describe_processor() -> tuple[str, ...]:
    """What tells processors apart for which code is compiled: architecture, then model and instruction sets."""
    try:
        lines = CPU_INFO.read_text().splitlines()
        found = sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    except OSError:
        found = [platform.processor()]
    return (platform.machine(), *found)


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
