"""How large a microbatch may be: an upper bound of the memory of one example, against what a process may use.

The bound is read off the traced program without compiling it. Both numbers depend on the machine and the workload
alone, never on what else is running: the microbatch is part of a trial's float order.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.machine import count_cores, count_memory_bytes
from batchscale.workloads.workload import Batch, Workload

MEMORY_SHARE = 0.4
CACHE_BYTES = 64 * 2**20  # by the bound of `example_bytes`, several times what is in use at a time
PARAMETER_SHARE = 128
MAX_EVALUATION_BATCH = 1024


def memory_bytes() -> int:
    """What the arrays of one process may take: its share of the device's, or of the machine's, memory."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(MEMORY_SHARE * stats["bytes_limit"])
    return int(MEMORY_SHARE * count_memory_bytes() / count_cores())


def example_bytes(workload: Workload, example: Batch) -> int:
    """An upper bound of what one more example in a batch takes: every intermediate value of the forward pass, twice.

    The backward pass keeps some of them and makes one gradient of the same size each.
    """
    multiple = workload.model.microbatch_multiple
    params, state = jax.eval_shape(workload.model.init, jax.random.key(0))

    def total(count: int) -> int:
        # stands for any number of examples without holding them
        batch = {
            name: np.broadcast_to(np.asarray(values)[:1], (count, *np.shape(values)[1:]))
            for name, values in example.items()
        }

        def forward(params: Any, state: Any, batch: Any, key: Any) -> Any:
            prepared = workload.dataset.prepare(batch)
            return workload.model.apply(params, state, prepared["inputs"], train=True, key=key)

        return _sum_sizes(jax.make_jaxpr(forward)(params, state, batch, jax.random.key(0)).jaxpr)

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
    """What a microbatch of one member of a population may take: its share of memory, on a CPU less where that is quick.

    On a CPU a step is quicker in microbatches whose values stay in the cache. Each adds its gradient to a sum, so one
    must be large beside the parameters (decision 0042).
    """
    share = memory_bytes() // slots
    if jax.default_backend() != "cpu":
        return share
    return min(share, max(CACHE_BYTES, PARAMETER_SHARE * parameter_bytes))


def choose_microbatch(batch_size: int, multiple: int, bytes_per_example: int, available: int) -> int:
    """The whole batch if it fits, otherwise the largest power of two times ``multiple`` that does.

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
