"""Critical and optimal batch size of a model that gives the steps to a goal at any batch size.

The curve of the model is fitted by the same laws as a measured one (``analysis.scaling``), so that a predicted and a
measured batch size mean the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.intervals import Estimate
from batchscale.analysis.scaling import fit_scaling
from batchscale.errors import AnalysisError

LEVEL = 0.9
_LAST_GAIN = 0.02  # a doubling that saves less than this share of the steps ends the curve
_MOST = 2.0**40  # examples


@dataclass(frozen=True)
class PredictedSizes:
    """The batch sizes of a model's curve; None where it has none, and then ``reason`` says why."""

    critical: float | None
    optimal: float | None
    reason: str = ""


def read_model_curve(steps_at: Callable[[float], float | None], factor: float = 2.0) -> PredictedSizes:
    """Return the critical and the optimal batch size of a model's curve.

    Args:
        steps_at: The steps to the goal at a batch size; None if the goal is not reached with it.
        factor: Between neighbouring batch sizes, from 1 up to where a doubling saves next to nothing.

    >>> sizes = read_model_curve(lambda size: 100 * (1 + 32 / size))
    >>> round(sizes.critical, 1), sizes.optimal
    (32.0, None)
    """
    size, points = 1.0, []
    while size <= _MOST:
        steps = steps_at(size)
        if steps is not None:
            points.append((size, max(steps, 1.0)))
        last = [number for _, number in points[-2:]]
        if len(points) > 2 and 1 - last[1] / last[0] < _LAST_GAIN * np.log2(factor):
            break
        size *= factor
    if not points:
        return PredictedSizes(None, None, "The model reaches the goal at no batch size.")
    frame = pl.DataFrame(points, schema={"batch_size": pl.Float64, "steps": pl.Float64}, orient="row")
    try:
        fit = fit_scaling(frame)
    except AnalysisError as error:
        return PredictedSizes(None, None, str(error))
    return PredictedSizes(fit.b_crit, fit.best.b_opt)


def with_interval(value: float | None, resampled: Sequence[float | None]) -> Estimate:
    """Return a value with the middle 90 % of resampled ones; without ends where too many of these have none."""
    numbers = [number for number in resampled if number is not None]
    if value is None or len(numbers) < max(10, LEVEL * len(resampled)):
        return Estimate(value)
    low, high = np.quantile([*numbers, value], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Estimate(value, float(min(low, value)), float(max(high, value)))
