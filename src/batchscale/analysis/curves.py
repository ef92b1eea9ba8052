"""What a curve is to the numeric parts: batch sizes and steps, checked, growing, as arrays."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from batchscale.errors import AnalysisError, one_line

Array = NDArray[np.float64]
AnyArray = np.ndarray[Any, Any]


def curve_points(curve: pl.DataFrame) -> tuple[Array, Array]:
    """Batch sizes and steps of one curve by growing batch size; rows without steps (goal not reached) are left out.

    Raises:
        AnalysisError: a column is missing, a batch size stands twice, or a value is not a positive number.
    """
    for name in ("batch_size", "steps"):
        if name not in curve.columns:
            raise AnalysisError(f"A curve has the columns batch_size and steps. Found {one_line(curve.columns)}.")
    points = curve.select(pl.col("batch_size").cast(pl.Float64), pl.col("steps").cast(pl.Float64)).drop_nulls()
    points = points.sort("batch_size")
    sizes, steps = points["batch_size"].to_numpy(), points["steps"].to_numpy()
    if not (np.isfinite(sizes).all() and np.isfinite(steps).all() and (sizes > 0).all() and (steps > 0).all()):
        raise AnalysisError("Batch sizes and steps of a curve must be positive numbers.")
    twice = sizes[1:][sizes[1:] == sizes[:-1]]
    if twice.size:
        raise AnalysisError(
            f"A batch size stands once in a curve. Found {twice[0]:g} more than once; select one workload and one goal."
        )
    return sizes, steps
