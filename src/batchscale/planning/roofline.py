"""The least time of a step on a device by its peak numbers: arithmetic, memory and the exchange of gradients.

A device computes for the longer of operations / peak and bytes / bandwidth, and then updates its weights. Gradients are
reduced by rings: 2 (n - 1)/n times their bytes over the link of n devices in a host, then 2 (h - 1)/h times over the
network of each of h hosts; where the link joins hosts, one ring over all devices. Sharded weights are collected twice
in every pass. A share ``overlap`` of the shorter of computing and exchanging is hidden behind the longer.
"""

from dataclasses import dataclass

import numpy as np

from batchscale.errors import PlanningError
from batchscale.planning.accelerators import Accelerator
from batchscale.planning.memory import RECOMPUTED_WORK, Fit, Sharding, passes_of, ways_to_fit
from batchscale.planning.step_form import FloatArray, Layout
from batchscale.planning.work import BYTES_OF, StepWork

OVERLAP = 0.7
"""The share of exchanging that is hidden behind computing, unless another is requested."""


@dataclass(frozen=True)
class LeastTimes:
    """The least time of each configuration, NaN if it does not fit or a bandwidth is not known, and the way to fit.

    ``passes`` is the number of micro-batches that a device accumulates.
    """

    seconds: FloatArray
    sharding: list[str]
    recompute: list[bool]
    passes: FloatArray


def least_times(work: StepWork, accelerator: Accelerator, at: Layout, overlap: float = OVERLAP) -> LeastTimes:
    """Return the least times of configurations, each with the fastest way to fit into memory.

    Raises:
        PlanningError: the device has no such precision, or the overlap is not a share.
    """
    peak = accelerator.peak(work.precision)
    if peak is None:
        raise PlanningError(f"the table of devices has no {work.precision} TFLOP/s of {accelerator.device}")
    if not 0 <= overlap <= 1:
        raise PlanningError(f"The overlap must be a share from 0 to 1. Found {overlap:g}.")
    best = np.full(len(at), np.inf)
    chosen = np.zeros(len(at), dtype=np.int64)
    ways = ways_to_fit(work.memory, accelerator.memory_bytes, at.devices)
    passes = np.stack([passes_of(at.share, way.room) for way in ways])
    for number, way in enumerate(ways):
        does_fit = np.isfinite(passes[number])
        finite = np.where(does_fit, passes[number], 1.0)
        seconds = np.where(does_fit, _seconds(work, accelerator, at, (way, finite, peak, overlap)), np.inf)
        faster = seconds < best * (1 - 1e-9)
        best[faster], chosen[faster] = seconds[faster], number
    return LeastTimes(
        np.where(np.isfinite(best), best, np.nan),
        [str(ways[number].sharding) for number in chosen],
        [ways[number].recompute for number in chosen],
        passes[chosen, np.arange(len(at))],
    )


def _seconds(work: StepWork, device: Accelerator, at: Layout, way: tuple[Fit, FloatArray, float, float]) -> FloatArray:
    fit, passes, peak, overlap = way
    again = RECOMPUTED_WORK if fit.recompute else 1.0
    operations = again * (at.share * work.flops_per_example + passes * work.flops_per_pass)
    moved = at.share * work.bytes_per_example + passes * work.bytes_per_pass
    divided = at.devices if fit.sharding is not Sharding.NONE else np.ones(len(at))
    update = work.bytes_per_update / divided / device.memory_bytes_per_s
    computing = np.maximum(operations / peak, moved / device.memory_bytes_per_s) + update
    exchanging = _exchange(work, device, at, fit.sharding, passes)
    return np.asarray(computing + exchanging - overlap * np.minimum(computing, exchanging))


def _exchange(work: StepWork, device: Accelerator, at: Layout, sharding: Sharding, passes: FloatArray) -> FloatArray:
    """Return the seconds of all rings; infinite over a link or a network of unknown bandwidth."""
    volume = np.full(len(at), 2 * work.gradient_bytes)
    if sharding is Sharding.PARAMETERS:  # weights collected for both halves of every pass, gradients reduced once
        weights = work.parameters * BYTES_OF[work.precision]
        volume = work.gradient_bytes + 2 * passes * weights
    ring = at.devices if device.link_joins_hosts else at.devices / at.hosts
    link = _ring_seconds(volume, ring, device.link_bytes_per_s)
    if device.link_joins_hosts:
        return link
    return link + _ring_seconds(volume, at.hosts, device.network_bytes_per_s)


def _ring_seconds(volume: FloatArray, members: FloatArray, bytes_per_s: float | None) -> FloatArray:
    several = members > 1
    if bytes_per_s is None:
        return np.where(several, np.inf, 0.0)
    return np.where(several, volume * (members - 1) / members / bytes_per_s, 0.0)
