"""Metrics as sums that add up over evaluation batches: means, and average precision by counts at thresholds."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.workloads.workload import Batch

NUM_THRESHOLDS = 200
_EPSILON = 1e-7
_LIMB = 1 << 16

Sums = tuple[jax.Array, jax.Array]
"""A sum of values and a sum of weights."""

Counts = tuple[jax.Array, jax.Array]
"""The high and low halves of counts, see `measure_average_precision`."""


def mean_of(
    values: Callable[[jax.Array, Batch], jax.Array], *, per_token: bool = False
) -> Callable[[jax.Array, Batch, jax.Array], Sums]:
    """Return the measure of a metric with a value per example or token; the batch's mask leaves some out."""

    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> Sums:
        if per_token:
            weights = batch["mask"].astype(jnp.float32) * weights[:, None]
        elif "mask" in batch:
            weights = batch["mask"].astype(jnp.float32) * weights
        # Padding may hold anything, so its values are left out rather than multiplied by 0: 0·nan is nan.
        counted = jnp.where(weights > 0, values(outputs, batch) * weights, 0.0)
        return jnp.sum(counted), jnp.sum(weights)

    return measure


def ratio(sums: Sums) -> jax.Array:
    """Return the mean: the total over the weight."""
    total, weight = sums
    return total / weight


def make_thresholds() -> NDArray[np.float32]:
    """Return the thresholds: evenly spaced in (0, 1), one just below 0 and one just above 1."""
    inner = np.arange(1, NUM_THRESHOLDS - 1) / (NUM_THRESHOLDS - 1)
    return np.concatenate([[-_EPSILON], inner, [1 + _EPSILON]]).astype(np.float32)


def measure_average_precision(outputs: jax.Array, batch: Batch, weights: jax.Array) -> Counts:
    """Count the predictions above each threshold: all and the positive ones, shape (2, thresholds).

    For class-agnostic average precision (the paper's footnote 22): every pair of example and class is one prediction.
    A count is split into two whole numbers (high and low half), so that sums over billions of pairs stay exact
    without 64-bit arithmetic.
    """
    chances = jax.nn.sigmoid(outputs.astype(jnp.float32))
    above = jnp.searchsorted(jnp.asarray(make_thresholds()), chances, side="left")  # thresholds below the chance
    counted = weights if "mask" not in batch else weights * batch["mask"]
    real = jnp.broadcast_to((counted > 0)[:, None], chances.shape).astype(jnp.int32)
    positive = real * (batch["labels"] > 0)
    empty = jnp.zeros(NUM_THRESHOLDS + 1, jnp.int32)
    binned = jnp.stack([empty.at[above].add(real), empty.at[above].add(positive)])
    counts = jnp.cumsum(binned[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return counts // _LIMB, counts % _LIMB


def value_average_precision(counts: Counts) -> jax.Array:
    """Return the area under the precision-recall curve, between neighbouring thresholds by careful interpolation.

    Davis and Goadrich (2006): between two thresholds true positives grow linearly with predicted positives ``p``,
    ``tp = a + b·p``; the area is the integral of ``tp / p`` over ``tp``, divided by the number of positives.
    """
    high, low = counts
    predicted, true = high.astype(jnp.float32) * _LIMB + low.astype(jnp.float32)
    more_true, more_predicted = true[:-1] - true[1:], predicted[:-1] - predicted[1:]
    slope = jnp.where(more_predicted > 0, more_true / jnp.maximum(more_predicted, 1.0), 0.0)
    intercept = true[1:] - slope * predicted[1:]
    ratio = jnp.where(predicted[1:] > 0, predicted[:-1] / jnp.maximum(predicted[1:], 1.0), 1.0)
    area = jnp.sum(slope * (more_true + intercept * jnp.log(ratio)))
    # Every positive lies above the first threshold; without positives the result is nan.
    return jnp.divide(area, true[0])
