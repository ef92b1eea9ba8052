"""The environment of workers: their default number, their devices and memory, and the variables that set them."""

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
"""The variable with a worker's place among the workers of its machine, from 0."""

_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"


def default_workers(devices_per_trial: int = 1) -> int:
    """Return one worker per ``devices_per_trial`` devices: accelerators, or cores if there are none."""
    return max(1, count_devices() // devices_per_trial)


def check_devices(per_trial: int | None, workers: int | None = None) -> int:
    """Return the number of devices that train a trial together: ``per_trial``, or all of this machine for None.

    Raises:
        RunError: there are not so many, or not for so many workers.
    """
    available = count_devices()
    needed = (per_trial or available) * (workers or 1)
    if needed > available and per_trial != 1:  # workers of one device may share it
        kind = "accelerators" if count_accelerators() else "cores"
        request = f"{per_trial} asked for"
        if workers:
            request = f"{workers} workers of {per_trial or available} each need {needed}"
        raise RunError(
            f"Trials are spread over the devices that there are. Found {available} ({kind}); {request}. Ask for fewer, "
            f"or for 'all'; to try it out on a processor, set XLA_FLAGS={HOST_DEVICES}={needed}."
        )
    return per_trial or available


def memory_limit(workers: int) -> int:
    """Return the bytes above which a worker is replaced: its share of 80 % of the machine or container."""
    return int(MEMORY_SHARE * count_memory_bytes() / max(1, workers))


def worker_environment(place: int, num_devices: int = 1) -> dict[str, str]:
    """Return the environment of the worker at this place."""
    return {**os.environ, **worker_variables(place, num_devices)}


def worker_variables(place: int, num_devices: int = 1) -> dict[str, str]:
    """Return the variables of the worker at this place: its share of the accelerators, or a thread for each device."""
    variables = {
        # a worker finds the same modules as the driver, however that was started
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONUNBUFFERED": "1",
        PLACE_VARIABLE: str(place),
    }
    accelerators = count_accelerators()
    if accelerators:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(accelerators)))).split(",")
        groups = max(1, len(visible) // num_devices)
        first = place % groups * num_devices
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(name.strip() for name in visible[first : first + num_devices])
        return variables
    return variables | single_threaded(os.environ.get("XLA_FLAGS", ""), num_devices)


def single_threaded(xla_flags: str = "", num_devices: int = 1) -> dict[str, str]:
    """Return the variables that limit each device to one thread; what the user has set in XLA_FLAGS stays."""
    flags = xla_flags if "xla_cpu_multi_thread_eigen" in xla_flags else f"{xla_flags} {_ONE_THREAD}".strip()
    flags = with_host_devices(flags, num_devices)
    return {"XLA_FLAGS": flags, **dict.fromkeys(_THREAD_VARIABLES, "1")}


def with_host_devices(xla_flags: str, num_devices: int) -> str:
    """Return XLA's flags with so many devices of the processor; one is its default."""
    other_flags = [flag for flag in xla_flags.split() if not flag.startswith(f"{HOST_DEVICES}=")]
    return " ".join([*other_flags, f"{HOST_DEVICES}={num_devices}"] if num_devices > 1 else other_flags)


def offer_devices(num_devices: int) -> None:
    """Set the number of devices of this process, if they are cores; called before JAX is loaded."""
    current = os.environ.get("XLA_FLAGS", "")
    flags = with_host_devices(current, num_devices)
    if flags != current and not count_accelerators():
        os.environ["XLA_FLAGS"] = flags


@contextlib.contextmanager
def computing_like_a_worker(num_devices: int = 1) -> Iterator[None]:
    """Inside, this process computes on one thread per device as a worker does, so that records are the same.

    The variables of the user are restored at the end.
    """
    variables = single_threaded(os.environ.get("XLA_FLAGS", ""), num_devices)
    saved = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
