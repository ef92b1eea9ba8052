"""The devices that train one trial, and the parts of a batch that each of them holds.

Several devices are a mesh with one axis. Parameters and the rest of a trial's state are on every device; examples lie
along the axis. A trial on one device has no mesh, and compiles to a program without any of this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from batchscale.errors import RunError
from batchscale.machine import name_processor
from batchscale.records.metadata.trial import Hardware

AXIS = "data"
EVERYWHERE = PartitionSpec()  # type: ignore[no-untyped-call]
ALONG_BATCHES = PartitionSpec(AXIS)  # type: ignore[no-untyped-call]
ALONG_EXAMPLES = PartitionSpec(None, None, AXIS)  # type: ignore[no-untyped-call]
"""For fed blocks, whose leading axes are slot, step and example."""

LOGICAL_SHARDS = 8
"""The shards of an exact sum on any number of devices; their sums are added in this order."""


def hide(value: Any) -> Any:
    """Return the same value; the compiler can deduce nothing about it."""
    return jax.lax.optimization_barrier(value)  # type: ignore[no-untyped-call]


def add_up(values: jax.Array) -> jax.Array:
    """Return the sum of the values of all devices, on each of them."""
    total: jax.Array = jax.lax.psum(values, AXIS)  # type: ignore[no-untyped-call]
    return total


def gather(values: jax.Array) -> jax.Array:
    """Return the values of all devices, joined along the first axis in their order, on each of them."""
    joined: jax.Array = jax.lax.all_gather(values, AXIS, tiled=True)
    return joined


class Devices:
    """One device, or several that train a trial together."""

    def __init__(self, devices: list[jax.Device], exact: bool = False) -> None:
        self.exact = exact
        self.num_devices = len(devices)
        self.num_hosts = len({device.process_index for device in devices})
        self.first = devices[0]
        self._mesh = Mesh(np.array(devices), (AXIS,)) if exact or len(devices) > 1 else None

    @property
    def several(self) -> bool:
        """True if batches are split: there is more than one device, or sums are exact."""
        return self._mesh is not None

    @property
    def local_range(self) -> range:
        """The positions along the axis that are devices of this process."""
        if self._mesh is None:
            return range(1)
        process = jax.process_index()
        local = [position for position, device in enumerate(self._mesh.devices) if device.process_index == process]
        return range(local[0], local[-1] + 1)

    def on_each(self, function: Callable[..., Any], in_specs: tuple[PartitionSpec, ...]) -> Callable[..., Any]:
        """Return a function that runs on every device with its part of the arguments; all have the same result."""
        if self._mesh is None:
            return function
        mapped: Callable[..., Any] = jax.shard_map(
            function, mesh=self._mesh, in_specs=in_specs, out_specs=EVERYWHERE, check_vma=False
        )
        return mapped

    def replicate(self, tree: Any) -> Any:
        """Return the arrays on every device."""
        if self._mesh is None:
            return jax.device_put(tree, may_alias=False)  # jnp.asarray would compile a program for each shape
        return jax.tree.map(lambda leaf: self.lay_out(np.asarray(leaf), EVERYWHERE), tree)

    def lay_out(self, values: NDArray[Any], spec: PartitionSpec) -> jax.Array:
        """Return an array with its parts placed as specified; each process places the parts of its own devices."""
        return self.assemble(values.shape, spec, lambda index: values[index])

    def assemble(
        self, shape: tuple[int, ...], spec: PartitionSpec, read: Callable[[tuple[slice, ...]], NDArray[Any]]
    ) -> jax.Array:
        """Return an array of this shape; ``read`` returns the parts, and is called for those of this process only."""
        if self._mesh is None:
            whole: jax.Array = jax.device_put(read(tuple(slice(0, size) for size in shape)))
            return whole
        return jax.make_array_from_callback(shape, NamedSharding(self._mesh, spec), lambda index: read(index or ()))


def choose_devices(count: int | None, exact: bool = False) -> Devices:
    """Return the first ``count`` devices of each process, or all of them; each process must have as many.

    Raises:
        RunError: there are fewer devices, or not as many in each process.
    """
    local = jax.local_devices()
    if count is not None and not 1 <= count <= len(local):
        raise RunError(
            f"--devices must be at most the number of devices: {len(local)} of kind {local[0].platform}. Found "
            f"{count}; give --devices {len(local)} or 'all'."
        )
    by_process: dict[int, list[jax.Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    groups = [by_process[process][:count] for process in sorted(by_process)]
    if len({len(group) for group in groups}) > 1:
        raise RunError(
            "All hosts of a cluster must train with the same number of devices. Found "
            f"{', '.join(str(len(group)) for group in groups)}; give --devices {min(map(len, groups))}."
        )
    return Devices([device for group in groups for device in group], exact)


def describe_hardware(num_devices: int = 1, num_hosts: int = 1) -> Hardware:
    """Return the hardware of a trial as its record names it; JAX does not name the model of a processor."""
    device = jax.local_devices()[0]
    kind = name_processor() if device.platform == "cpu" else device.device_kind
    return Hardware(kind, device.platform, num_devices, num_hosts)


@dataclass(frozen=True)
class Shards:
    """Contiguous slices of a batch: ``count`` of ``size`` examples each, over ``num_devices`` devices.

    The last ones may be smaller or empty. Every device holds the same number of shards, one after the other. With
    ``exact``, gradients are added shard by shard in a fixed order, so that the sum has the same bits on any number of
    devices.
    """

    batch_size: int
    count: int
    size: int
    num_devices: int
    exact: bool = False

    @property
    def per_device(self) -> int:
        """The number of shards of one device."""
        return -(-self.count // self.num_devices)

    @property
    def rows_per_device(self) -> int:
        """The rows for examples on one device, of which some may be empty."""
        return self.per_device * self.size

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of examples of each shard, including the empty ones of the last devices."""
        shards = range(self.num_devices * self.per_device)
        return tuple(min(self.size, max(0, self.batch_size - i * self.size)) for i in shards)

    @property
    def num_busy(self) -> int:
        """The number of devices that have examples."""
        return -(-self.batch_size // self.rows_per_device)


def split_batch(batch_size: int, num_devices: int, multiple: int = 1, exact: bool = False) -> Shards:
    """Return the shards of a batch; each holds whole multiples (ghost batches), which are never split.

    >>> split_batch(10, num_devices=4).counts
    (3, 3, 3, 1)
    >>> split_batch(100, num_devices=2, multiple=32).counts
    (64, 36)
    >>> split_batch(10, num_devices=2, exact=True).counts
    (2, 2, 2, 2, 2, 0, 0, 0)
    """
    count = LOGICAL_SHARDS if exact else num_devices
    size = -(-batch_size // (count * multiple)) * multiple
    return Shards(batch_size, count, size, num_devices, exact)
