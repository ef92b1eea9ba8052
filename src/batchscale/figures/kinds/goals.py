"""A family of curves, one for every goal."""

import polars as pl

from batchscale.figures.kind import FigureKind, FigureRequest
from batchscale.figures.kinds.curves import LOOK, plot_curves
from batchscale.figures.series import series_frame, workload_panels


def _data(request: FigureRequest) -> pl.DataFrame:
    ordered = sorted(request.goals, key=lambda goal: goal.value)
    return series_frame(request.records, workload_panels(request.records, ordered, first_trials=request.first_trials))


KIND = FigureKind(
    "a family of curves, one for every --goal", _data, lambda frame, look: plot_curves(frame, look, ordered=True), LOOK
)
