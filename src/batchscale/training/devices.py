"""The devices that one trial is trained on: a mesh with one axis, along which batches are cut.

Owns where arrays lie. Parameters and all else of a trial's state are on every device; examples lie along the axis. A
trial on one device has no mesh, and compiles to a program without any of this.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from batchscale.errors import RunError

AXIS = "data"
EVERYWHERE = PartitionSpec()  # type: ignore[no-untyped-call]
ALONG_BATCHES = PartitionSpec(AXIS)  # type: ignore[no-untyped-call]
ALONG_EXAMPLES = PartitionSpec(None, None, AXIS)  # type: ignore[no-untyped-call]
"""Of fed blocks, whose leading axes are slot, step and example."""


def hide(value: Any) -> Any:
    """The same value, about which the compiler knows nothing."""
    return jax.lax.optimization_barrier(value)  # type: ignore[no-untyped-call]


def add_up(values: jax.Array) -> jax.Array:
    """The sum of what all devices have, on each of them."""
    total: jax.Array = jax.lax.psum(values, AXIS)  # type: ignore[no-untyped-call]
    return total


def gather(values: jax.Array) -> jax.Array:
    """What all devices have, joined along the first axis in their order, on each of them."""
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
        """Whether batches are cut: there is more than one device, or sums are exact."""
        return self._mesh is not None

    @property
    def local_range(self) -> range:
        """Which places along the axis are devices of this process."""
        if self._mesh is None:
            return range(1)
        here = [place for place, device in enumerate(self._mesh.devices) if device.process_index == jax.process_index()]
        return range(here[0], here[-1] + 1)

    def on_each(self, function: Callable[..., Any], in_specs: tuple[PartitionSpec, ...]) -> Callable[..., Any]:
        """The function run on every device with its part of the arguments; the results are the same on all."""
        if self._mesh is None:
            return function
        mapped: Callable[..., Any] = jax.shard_map(
            function, mesh=self._mesh, in_specs=in_specs, out_specs=EVERYWHERE, check_vma=False
        )
        return mapped

    def replicate(self, tree: Any) -> Any:
        """The arrays on every device."""
        if self._mesh is None:
            return jax.tree.map(jax.numpy.asarray, tree)
        return jax.tree.map(lambda leaf: self.lay_out(np.asarray(leaf), EVERYWHERE), tree)

    def lay_out(self, values: NDArray[Any], spec: PartitionSpec) -> jax.Array:
        """An array whose parts lie as the specification says; each process gives its own parts alone to its devices."""
        return self.assemble(values.shape, spec, lambda index: values[index])

    def assemble(
        self, shape: tuple[int, ...], spec: PartitionSpec, read: Callable[[tuple[slice, ...]], NDArray[Any]]
    ) -> jax.Array:
        """The array of this shape whose parts are what ``read`` gives for them; asked for this process' parts only."""
        if self._mesh is None:
            whole: jax.Array = jax.device_put(read(tuple(slice(0, size) for size in shape)))
            return whole
        return jax.make_array_from_callback(shape, NamedSharding(self._mesh, spec), lambda index: read(index or ()))


def choose_devices(wanted: int | None, exact: bool = False) -> Devices:
    """The first devices of each process; None for all of them. Processes of a cluster have as many each.

    Raises:
        RunError: there are not so many.
    """
    found = jax.local_devices()
    if wanted is not None and not 1 <= wanted <= len(found):
        raise RunError(
            f"A trial is spread over the devices that there are. Found {len(found)} of kind {found[0].platform}, and "
            f"{wanted} asked for; give --devices {len(found)} or 'all'."
        )
    by_process: dict[int, list[jax.Device]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    chosen = [by_process[process][:wanted] for process in sorted(by_process)]
    if len({len(devices) for devices in chosen}) > 1:
        raise RunError(
            "All hosts of a cluster train with as many devices. Found "
            f"{', '.join(str(len(devices)) for devices in chosen)}; give --devices {min(map(len, chosen))}."
        )
    return Devices([device for devices in chosen for device in devices], exact)
