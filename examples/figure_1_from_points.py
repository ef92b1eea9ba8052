"""Draw Figure 1 of the paper from published points instead of records.

Run it as ``python figure_1_from_points.py OUT.png``.

``paper_figure_1.csv`` has the 89 points of the figure, read off the images in the authors' public notebook by drawing
each panel again until it equalled the image; exact to 0.1 %.
"""

import sys
from pathlib import Path

import polars as pl

from batchscale.analysis import Baseline
from batchscale.figures import CurvePanel, Look, Series, plot_curves, points_frame, write_chart
from batchscale.spec import Goal, WorkloadName


def read_points(path: Path) -> pl.DataFrame:
    """The frame behind the chart, a panel per workload."""
    frames = []
    for part in pl.read_csv(path).partition_by("panel", maintain_order=True):
        first = part.row(0, named=True)
        goal = Goal(first["goal_metric"], first["goal"], first["maximize"])
        workload = WorkloadName(first["dataset"], first["model"], first["optimizer"])
        panel = CurvePanel(first["panel"], (Series(workload, goal, first["panel"]),))
        frames.append(points_frame(part, panel, Baseline.FIRST))
    return pl.concat(frames)


if __name__ == "__main__":
    points = read_points(Path(__file__).with_name("paper_figure_1.csv"))
    look = Look(title="Steps to result against batch size: published points")
    write_chart(plot_curves(points, look), Path(sys.argv[1]))
