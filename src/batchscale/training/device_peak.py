"""The peak numbers of this machine's device by measuring: a large matrix product, and a copy of a large array."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from batchscale.machine import count_memory_bytes
from batchscale.training.devices import describe_hardware

PRODUCT_SIZE = 2048
COPIED_NUMBERS = 2**25
REPETITIONS = 7
TYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclass(frozen=True)
class DevicePeak:
    """The best of several measurements: operations per second by precision, and bytes per second."""

    device: str
    flops: dict[str, float]
    bytes_per_s: float
    memory_bytes: float


def measure_peak(product_size: int = PRODUCT_SIZE, numbers: int = COPIED_NUMBERS) -> DevicePeak:
    """Return the peak numbers of the device that JAX uses."""
    flops = {}
    for precision, kind in TYPES.items():
        matrix = jnp.ones((product_size, product_size), kind)
        seconds = _least_seconds(jax.jit(jnp.matmul), matrix, matrix)
        flops[precision] = 2 * product_size**3 / seconds
    values = jnp.ones(numbers, jnp.float32)
    seconds = _least_seconds(jax.jit(lambda array: array + 1), values)
    stats = jax.local_devices()[0].memory_stats() or {}
    memory = float(stats.get("bytes_limit") or count_memory_bytes())
    return DevicePeak(describe_hardware().device_kind, flops, 2 * 4 * numbers / seconds, memory)


def _least_seconds(program: Callable[..., Any], *arguments: Any) -> float:
    program(*arguments).block_until_ready()
    times = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        program(*arguments).block_until_ready()
        times.append(time.perf_counter() - began)
    return min(times)
