"""Smoothed learning curves: what a noisy line does in the mean, beside the line itself."""

import polars as pl

from batchscale.errors import SpecError

MOST = 0.99


def smooth_curves(rows: pl.DataFrame, weight: float) -> pl.DataFrame:
    r"""The rows with each trial's ``value`` replaced by its exponential moving average over measurements.

    A measurement counts ``weight`` times as much as the one after it, and the weights are divided by their sum, so that
    the first values are not drawn towards 0: :math:`\sum_i w^{n-i} y_i / \sum_i w^{n-i}`. A goal is reached by
    measurements, never by this line.

    >>> rows = pl.DataFrame({"panel": ["a"] * 3, "trial_id": [1] * 3, "step": [1, 2, 3], "value": [4.0, 2.0, 2.0]})
    >>> smooth_curves(rows, 0.5)["value"].round(3).to_list()
    [4.0, 2.667, 2.286]
    """
    if not 0 <= weight <= MOST:
        raise SpecError(f"The weight of smoothing lies between 0 and {MOST}. Found {weight:g}.")
    if weight == 0 or rows.is_empty():
        return rows
    mean = pl.col("value").ewm_mean(alpha=1 - weight, adjust=True, ignore_nulls=True)
    return rows.sort("panel", "trial_id", "step", maintain_order=True).with_columns(mean.over("panel", "trial_id"))


def beside_raw(rows: pl.DataFrame, weight: float) -> pl.DataFrame:
    """The rows smoothed, and each named series once more as it was measured, faintly and under a negative trial id."""
    if weight == 0:
        return rows
    raw = rows.drop_nulls("series").with_columns(
        pl.lit(None, dtype=pl.String).alias("series"), (-1 - pl.col("trial_id")).alias("trial_id")
    )
    return pl.concat([smooth_curves(rows, weight), raw])
