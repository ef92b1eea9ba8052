"""The memory of a training step on a device: weights, gradients, optimizer and activations; and what fits.

Sharding follows ZeRO (Rajbhandari et al. 2020): devices divide the optimizer state, then also the gradients, then also
the weights among each other. Recomputation keeps the input of each layer and computes the rest again.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from batchscale.planning.step_form import FloatArray

USABLE = 0.9
"""The share of a device's memory that a program can use; the rest is the framework's, and lost between blocks."""
RECOMPUTED_WORK = 4 / 3
"""The operations of a step that computes the forward pass again, by those of one that does not."""


class Sharding(StrEnum):
    """The part of the state that devices divide among each other."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    GRADIENTS = "gradients"
    PARAMETERS = "parameters"


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a step needs on one device.

    ``activations`` and ``recomputed`` are bytes of an example, the latter with recomputation; None if the program
    cannot do so. ``can_shard`` is False if only the whole state is known.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    recomputed: float | None = None
    can_shard: bool = True

    @classmethod
    def measured(cls, fixed: float, per_example: float) -> "MemoryNeed":
        """Return the need of a compiled program: a fixed part, and a part of each example."""
        return cls(fixed, 0.0, 0.0, per_example, can_shard=False)

    def state(self, sharding: Sharding, devices: FloatArray) -> FloatArray:
        """Return the bytes of weights, gradients and optimizer on each device."""
        level = list(Sharding).index(sharding)
        parts = (self.optimizer, self.gradients, self.weights)
        return np.asarray(
            sum(part / devices if level > place else part + 0 * devices for place, part in enumerate(parts))
        )


@dataclass(frozen=True)
class Fit:
    """One way to fit a step: sharding, recomputation, and the examples that a device can hold at once (0: none)."""

    sharding: Sharding
    recompute: bool
    room: FloatArray


def ways_to_fit(need: MemoryNeed | None, memory_bytes: float, devices: FloatArray) -> list[Fit]:
    """Return every way to train on so many devices, the simplest first."""
    if need is None:
        return [Fit(Sharding.NONE, recompute=False, room=np.full(len(devices), np.inf))]
    ways = []
    for recompute in (False, True) if need.recomputed is not None else (False,):
        each = need.recomputed if recompute and need.recomputed is not None else need.activations
        for sharding in Sharding if need.can_shard else (Sharding.NONE,):
            free = USABLE * memory_bytes - need.state(sharding, devices)
            ways.append(Fit(sharding, recompute, np.maximum(np.floor(free / each), 0.0)))
    return ways


def smallest_number(need: MemoryNeed | None, memory_bytes: float, most: int = 1_000_000) -> int | None:
    """Return the fewest devices on which a step of one example each fits; None if none of up to ``most`` do.

    >>> small, large = MemoryNeed(2e9, 2e9, 12e9, 1e9), MemoryNeed(20e9, 20e9, 120e9, 1e9)
    >>> smallest_number(small, 80e9), smallest_number(large, 80e9)
    (1, 3)
    """
    if need is None:
        return 1
    low, high = 1, 1
    while not _fits(need, memory_bytes, high):
        low, high = high + 1, high * 2
        if high > most:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(need, memory_bytes, middle) else (middle + 1, high)
    return high


def _fits(need: MemoryNeed, memory_bytes: float, devices: int) -> bool:
    return any(way.room[0] >= 1 for way in ways_to_fit(need, memory_bytes, np.array([float(devices)])))


def passes_of(share: FloatArray, room: FloatArray) -> FloatArray:
    """Return the passes (micro-batches) in which a device computes its share of a batch; infinite without room."""
    with np.errstate(divide="ignore", invalid="ignore"):
        passes = np.ceil(share / np.where(np.isinf(room), share, room))
    return np.where(room >= 1, passes, math.inf)
