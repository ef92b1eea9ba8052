"""Steps to result against the number of trials, all batch sizes of a workload in one panel: where more still pay."""

import altair as alt
import polars as pl

from batchscale.figures.frames import empty_reason, panel_notes
from batchscale.figures.kind import FigureKind
from batchscale.figures.kinds.best_of_n import best_of_frame, trial_axes, trial_tooltips
from batchscale.figures.layout import Chart, Drawn, Look, draw_panels, inline
from batchscale.figures.theme import series_colours

LOOK = Look(columns=2)


def plot_expected_steps(frame: pl.DataFrame, look: Look = LOOK) -> Chart:
    """Draw a panel per workload: the median steps to result against the number of trials, a line per batch size."""
    return draw_panels(frame, _panel, look, of="workloads")


def _panel(frame: pl.DataFrame, look: Look) -> Drawn | str:
    points = frame.drop_nulls("median")
    if points.is_empty():
        return empty_reason(frame)
    labels = points.sort("batch_size")["series"].unique(maintain_order=True).to_list()
    x, y, _ = trial_axes(points)
    scale = alt.Scale(domain=labels, range=series_colours(look.theme, len(labels), ordered=True))
    colour = alt.Color("series:N", sort=None, scale=scale, legend=alt.Legend(title=None, orient="right"))
    base = alt.Chart(inline(points))
    layers = [
        base.mark_line(strokeWidth=1.6).encode(x=x, y=y, color=colour, detail="series:N"),
        base.mark_point(filled=True, size=24, opacity=1).encode(x=x, y=y, color=colour, tooltip=trial_tooltips()),
    ]
    return Drawn(layers, panel_notes(frame))


KIND = FigureKind(
    "median steps to result against the number of trials, for every batch size",
    lambda request: best_of_frame(request.counted, request.goal, per_study=False),
    plot_expected_steps,
    LOOK,
)
