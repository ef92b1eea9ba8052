"""The environment of workers: how many there are by default, what each may use, and the variables that say so."""

import contextlib
import os
import sys
from collections.abc import Iterator

from batchscale.errors import RunError
from batchscale.machine import HOST_DEVICES, count_accelerators, count_devices, count_memory_bytes

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


def default_workers(devices_per_trial: int = 1) -> int:
    """One worker per group of devices: accelerators, or cores where there are none."""
    return max(1, count_devices() // devices_per_trial)


def check_devices(wanted: int | None, workers: int | None = None) -> int:
    """How many devices train a trial together; None for all that there are.

    Raises:
        RunError: there are not so many, or not for so many workers.
    """
    there = count_devices()
    needed = (wanted or there) * (workers or 1)
    if needed > there and wanted != 1:  # workers of one device may share it
        kind = "accelerators" if count_accelerators() else "cores"
        each = f"{workers} workers of {wanted or there} each need {needed}"
        raise RunError(
            f"Trials are spread over the devices that there are. Found {there} ({kind}); "
            f"{each if workers else f'{wanted} asked for'}. Ask for fewer, or for 'all'; to try it out on a processor, "
            f"set XLA_FLAGS={HOST_DEVICES}={needed}."
        )
    return wanted or there


def memory_limit(workers: int) -> int:
    """The bytes above which a worker is replaced by a fresh process: its share of 80 % of machine or container."""
    return int(MEMORY_SHARE * count_memory_bytes() / max(1, workers))


def worker_environment(place: int, num_devices: int = 1) -> dict[str, str]:
    """The environment of the worker at this place: accelerators of its own, or a thread for each device."""
    environment = dict(os.environ)
    # a worker finds the same modules as the driver, however that was started
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment["PYTHONUNBUFFERED"] = "1"
    environment[PLACE_VARIABLE] = str(place)
    accelerators = count_accelerators()
    if accelerators:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(accelerators)))).split(",")
        groups = max(1, len(visible) // num_devices)
        first = place % groups * num_devices
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(name.strip() for name in visible[first : first + num_devices])
        return environment
    return environment | single_threaded(environment.get("XLA_FLAGS", ""), num_devices)


def single_threaded(xla_flags: str = "", num_devices: int = 1) -> dict[str, str]:
    """The variables that keep the compute of each device on one thread; what the user has set in XLA_FLAGS stays."""
    flags = xla_flags if "xla_cpu_multi_thread_eigen" in xla_flags else f"{xla_flags} {_ONE_THREAD}".strip()
    flags = with_host_devices(flags, num_devices)
    return {"XLA_FLAGS": flags, **dict.fromkeys(_THREAD_VARIABLES, "1")}


def with_host_devices(xla_flags: str, num_devices: int) -> str:
    """The flags of XLA with so many devices of the processor; one is what it offers by itself."""
    others = [flag for flag in xla_flags.split() if not flag.startswith(f"{HOST_DEVICES}=")]
    return " ".join([*others, f"{HOST_DEVICES}={num_devices}"] if num_devices > 1 else others)


def offer_devices(num_devices: int) -> None:
    """Let this process have so many devices, where they are cores; called before JAX has looked for any."""
    before = os.environ.get("XLA_FLAGS", "")
    flags = with_host_devices(before, num_devices)
    if flags != before and not count_accelerators():
        os.environ["XLA_FLAGS"] = flags


@contextlib.contextmanager
def computing_like_a_worker(num_devices: int = 1) -> Iterator[None]:
    """Inside, this process computes on one thread per device as a worker does, so that records are the same.

    The variables of the user come back at the end.
    """
    wanted = single_threaded(os.environ.get("XLA_FLAGS", ""), num_devices)
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
