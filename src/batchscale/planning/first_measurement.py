"""The measurement that would sharpen a plan of estimates most: steps of one kind of device, its price and its worth.

The slowdowns of all kinds of devices are jointly normal in logarithms (``efficiency``). Timing one kind tells its own
and moves those of the others. Its worth is what the better choice is expected to save over choosing now: the mean, over
draws of all slowdowns, of the outcome of today's choice less that of the choice made after the measurement.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.planning.efficiency import Slowdown, precise_device, predict_slowdowns
from batchscale.planning.estimate import OWN, StepEstimate
from batchscale.planning.recommend import Choice
from batchscale.planning.step_form import FloatArray
from batchscale.planning.step_model import ESTIMATED

STEPS = 100
DRAWS = 4000


@dataclass(frozen=True)
class FirstMeasurement:
    """A measurement to make before deciding.

    Attributes:
        choice: The smallest configuration of the device to time.
        time_s: Of ``STEPS`` steps, with its start-up.
        cost: In the plan's unit.
        saves: What it is expected to save: money, or seconds if the plan has a budget.
        before: Half width of the interval of a step time on that device, as a factor.
        after: The same after the measurement.
        elsewhere: The widest interval of another device after the measurement, as a factor; None without others.
    """

    choice: Choice
    time_s: float
    cost: float
    saves: float
    before: float
    after: float
    elsewhere: float | None


def find_first_measurement(
    table: pl.DataFrame, estimates: Mapping[str, StepEstimate], *, for_time: bool = False
) -> FirstMeasurement | None:
    """Return the most useful measurement of a plan; None if nothing of it is estimated.

    Args:
        table: The plan's configurations.
        estimates: By the name of a machine.
        for_time: Decide by expected time instead of expected cost.
    """
    column = "expected_time_s" if for_time else "expected_cost"
    estimated = table.filter(pl.col("step_time_from") == ESTIMATED)
    groups = _groups(estimated, estimates)
    if not groups:
        return None
    names = list(groups)
    kinds = {estimates[frame["machine"][0]].work.kind for frame in groups.values()}
    first = estimates[groups[names[0]]["machine"][0]]
    if len(kinds) > 1:  # different kinds of work have no common outlook
        names = [name for name in names if estimates[groups[name]["machine"][0]].work.kind == first.work.kind]
    outlook = predict_slowdowns(first.work.kind, OWN, names, first.measured)
    best = np.array([float(groups[name][column].to_numpy().min()) for name in names])
    worth = _worth(best, outlook.covariance)
    number = int(np.argmax(worth)) if worth.max() > 0 else int(np.argmin(best))
    choice = _smallest(groups[names[number]])
    time_s = choice["startup_s"] + STEPS * choice["step_time_s"]
    left = _after(outlook.covariance, number)
    others = [outlook.half_width(float(left[i, i])) for i in range(len(names)) if i != number]
    return FirstMeasurement(
        choice=choice,
        time_s=time_s,
        cost=time_s / 3600 * choice["price_per_hour"],
        saves=float(worth[number]),
        before=math.exp(outlook.half_width(float(outlook.covariance[number, number]))),
        after=math.exp(_own_width(first, names[number])),
        elsewhere=math.exp(max(others)) if others else None,
    )


def _groups(estimated: pl.DataFrame, estimates: Mapping[str, StepEstimate]) -> dict[str, pl.DataFrame]:
    """Return the estimated configurations by device and precision."""
    keys = {
        name: precise_device(estimate.accelerator.device, estimate.work.precision)
        for name, estimate in estimates.items()
    }
    groups: dict[str, list[str]] = {}
    for machine in estimated["machine"].unique(maintain_order=True).sort():
        groups.setdefault(keys[machine], []).append(machine)
    return {key: estimated.filter(pl.col("machine").is_in(machines)) for key, machines in groups.items()}


def _smallest(frame: pl.DataFrame) -> Choice:
    """Return the configuration that costs least to time."""
    cost = (pl.col("startup_s") + STEPS * pl.col("step_time_s")) * pl.col("price_per_hour")
    return frame.sort(cost, "machine", "hosts", "batch_size").row(0, named=True)


def _worth(best: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the expected saving of measuring each device."""
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(len(best)), covariance, DRAWS, method="eigh")
    outcomes = best * np.exp(draws)
    today = outcomes[:, int(np.argmin(best))].mean()
    rows = np.arange(DRAWS)
    savings = []
    for number in range(len(best)):
        shifts = np.outer(draws[:, number], covariance[number] / covariance[number, number])
        savings.append(today - outcomes[rows, np.argmin(best * np.exp(shifts), axis=1)].mean())
    return np.asarray(np.maximum(np.array(savings), 0.0), dtype=np.float64)


def _after(covariance: FloatArray, number: int) -> FloatArray:
    """Return the covariances once one of the slowdowns is known."""
    column = covariance[:, number]
    return np.asarray(covariance - np.outer(column, column) / covariance[number, number])


def _own_width(estimate: StepEstimate, device: str) -> float:
    """Return the half width on a device after one measurement on it, in another configuration."""
    measured = (*estimate.measured, Slowdown(estimate.work.kind, OWN, device, 0.0))
    outlook = predict_slowdowns(estimate.work.kind, OWN, [device], measured)
    return outlook.half_width(float(outlook.covariance[0, 0]))
