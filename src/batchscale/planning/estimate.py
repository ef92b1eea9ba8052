"""Step times of devices that nobody measured: the least time by the table of devices, times a checked efficiency.

An estimate has the interface of a fitted model (``step_model``): ``predict`` and ``kinds``. Measured step times of the
same workload, on any device of the table, move and narrow it (``efficiency``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from batchscale.errors import PlanningError
from batchscale.planning.accelerators import Accelerator, find_accelerator, read_accelerators
from batchscale.planning.devices import device_key
from batchscale.planning.efficiency import (
    Efficiency,
    Slowdown,
    precise_device,
    predict_efficiency,
    public_results,
)
from batchscale.planning.machines import Machine
from batchscale.planning.memory import smallest_number
from batchscale.planning.roofline import OVERLAP, LeastTimes, least_times
from batchscale.planning.step_form import FloatArray, Layout
from batchscale.planning.step_model import ESTIMATED, fit_step_model, layout_of
from batchscale.planning.step_times import StepTime
from batchscale.planning.work import StepWork

OWN = "the workload of this plan"
MOSTLY_LATENCY = 1.1  # times the latency


@dataclass(frozen=True)
class EstimateInputs:
    """The work of a step, a file of further devices, and the share of exchanging hidden behind computing."""

    work: StepWork
    devices: Path | None = None
    overlap: float = OVERLAP


@dataclass(frozen=True)
class StepEstimate:
    """The estimated step times of one machine.

    Attributes:
        device: The name of the device, as the machine has it.
        accelerator: Its peak numbers.
        work: The work of a step; its kind is "other" if the step is shorter than any that was checked.
        efficiency: The factor between least and expected time.
        measured: The measurements that moved it.
        overlap: The share of exchanging hidden behind computing.
        latency_s: The part of a step that no device shortens, as measurements of several batch sizes show it.
    """

    device: str
    accelerator: Accelerator
    work: StepWork
    efficiency: Efficiency
    measured: tuple[Slowdown, ...] = ()
    overlap: float = OVERLAP
    latency_s: float = 0.0

    def least(self, at: Layout) -> LeastTimes:
        """Return the least times of configurations, and how they fit into memory."""
        return least_times(self.work, self.accelerator, at, self.overlap)

    def predict(self, at: Layout) -> tuple[FloatArray, FloatArray]:
        """Return step times and the half widths of their 90 % intervals in logarithms; NaN if a step does not fit.

        Steps shorter than any that was checked may be held up by latencies, which the least time does not have: they
        lie between their own time and that of the shortest checked one, so their middle is the geometric mean.
        """
        least = self.least(at).seconds
        half_way = np.maximum(np.log(shortest_checked(self.work.kind) / least), 0.0) / 2
        times = self.latency_s + self.efficiency.factor * least * np.exp(half_way)
        return times, np.hypot(self.efficiency.half_width, half_way)

    def kinds(self, at: Layout) -> list[str]:
        """Return "estimated" for each configuration."""
        return [ESTIMATED] * len(at)

    @property
    def fewest_devices(self) -> int | None:
        """Return the fewest devices on which a step fits; None if no number does."""
        return smallest_number(self.work.memory, self.accelerator.memory_bytes)


def shortest_checked(kind: str) -> float:
    """Return the shortest least time among the public results of a kind."""
    return min(result.slowdown.least_s for result in public_results() if result.slowdown.kind == kind)


def make_estimates(
    inputs: EstimateInputs, machines: Sequence[Machine], times: Sequence[StepTime] = (), largest_batch: int = 1
) -> tuple[dict[str, StepEstimate], tuple[str, ...]]:
    """Return the estimates of machines by their names, and why others have none.

    Args:
        inputs: The work and the table.
        machines: Those of a plan.
        times: Measured step times of the same workload, on any device.
        largest_batch: Of the curve; decides if steps are long enough to be compared with those that were checked.
    """
    accelerators = read_accelerators(inputs.devices)
    latency_s = measured_latency(times)
    estimates: dict[str, StepEstimate] = {}
    reasons: dict[str, None] = {}
    for machine in machines:
        accelerator = find_accelerator(machine.device, accelerators, machine.devices_per_host)
        if accelerator is None:
            unknown = f"{machine.device} is not in the table of devices, which 'batchscale devices' lists"
            reasons[f"{unknown} (--devices FILE adds it)"] = None
            continue
        if accelerator.peak(inputs.work.precision) is None:
            reasons[f"the table of devices has no {inputs.work.precision} TFLOP/s of {accelerator.device}"] = None
            continue
        accelerator = _with_network(accelerator, machine)
        work = _with_kind(inputs, accelerator, largest_batch)
        measured = measured_slowdowns(replace(inputs, work=work), accelerators, times, latency_s)
        device = precise_device(accelerator.device, work.precision)
        efficiency = predict_efficiency(work.kind, OWN, device, measured)
        estimates[machine.name] = StepEstimate(
            machine.device, accelerator, work, efficiency, measured, inputs.overlap, latency_s
        )
    return estimates, tuple(reasons)


def _with_network(accelerator: Accelerator, machine: Machine) -> Accelerator:
    if machine.network_gbit_per_s is None:
        return accelerator
    return replace(accelerator, network_bytes_per_s=1e9 / 8 * machine.network_gbit_per_s)


def _with_kind(inputs: EstimateInputs, accelerator: Accelerator, largest_batch: int) -> StepWork:
    """Return the work as of kind "other" if even the largest batch on one device is shorter than any checked step."""
    work = replace(inputs.work, memory=None)
    alone = Layout(np.ones(1), np.ones(1), np.array([float(largest_batch)]))
    longest = least_times(work, accelerator, alone, inputs.overlap).seconds[0]
    return replace(inputs.work, kind="other") if longest < shortest_checked(work.kind) else inputs.work


def measured_latency(times: Sequence[StepTime]) -> float:
    """Return the seconds of a step that do not depend on its examples, the least over devices.

    They are those of the model of each device (``step_model``) that was timed with several shares of a batch; without
    such a device 0, so that they count as inefficiency instead.
    """
    groups: dict[str, list[StepTime]] = {}
    for time in times:
        groups.setdefault(device_key(time.device), []).append(time)
    latencies = []
    for group in groups.values():
        if len({time.per_device_batch for time in group}) > 1:
            model = fit_step_model(group)
            latencies += [parameter.value for parameter in model.parameters if parameter.name == "latency_s"]
    return min(latencies, default=0.0)


def measured_slowdowns(
    inputs: EstimateInputs, accelerators: Sequence[Accelerator], times: Sequence[StepTime], latency_s: float = 0.0
) -> tuple[Slowdown, ...]:
    """Return the measured by least times of a workload, without its latency; devices outside the table do not count.

    Raises:
        PlanningError: a step took less than a tenth of its least time, so that work, precision or device are not those
            that were measured.
    """
    by_device: Mapping[str, Accelerator | None] = {
        time.device: find_accelerator(time.device, accelerators, time.devices_per_host) for time in times
    }
    slowdowns = []
    for time in times:
        accelerator = by_device[time.device]
        if accelerator is None or accelerator.peak(inputs.work.precision) is None:
            continue
        # The measured program did fit, whatever the memory model expects of it.
        least = least_times(replace(inputs.work, memory=None), accelerator, layout_of([time]), inputs.overlap).seconds[
            0
        ]
        if not math.isfinite(least):
            continue
        value = math.log(time.step_time_s / least)
        if value < -math.log(10):
            raise PlanningError(
                f"A step cannot take less than its work needs at the device's peak: {time.step_time_s:g} s were "
                f"measured on {time.devices} {time.device} with a batch of {time.batch_size:,}, and {least:.3g} s are "
                "the least. Check the batch size (sequences, not tokens), the work and its precision."
            )
        if time.step_time_s < MOSTLY_LATENCY * latency_s:
            continue  # such a step tells nothing of the rest
        value = math.log((time.step_time_s - latency_s) / least)
        device = precise_device(accelerator.device, inputs.work.precision)
        slowdowns.append(Slowdown(inputs.work.kind, OWN, device, value, float(least)))
    return tuple(slowdowns)
