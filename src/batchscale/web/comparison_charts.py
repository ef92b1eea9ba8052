"""Charts of several folders: their curves on one chart, and their best learning rates on another."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from batchscale.analysis.metaparameters import EFFECTIVE
from batchscale.errors import AnalysisError
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.figures.kinds.curves import plot_curves
from batchscale.figures.kinds.metaparameter import metaparameter_frame
from batchscale.figures.layout import Chart, Look, PanelSize
from batchscale.figures.rates import plot_rates
from batchscale.figures.series import CurvePanel, Series, series_frame
from batchscale.figures.theme import find_theme
from batchscale.records.frames import Records
from batchscale.web.charts import RENDERING, explorable, fitting, picture_of, require_goal, workload_at
from batchscale.web.comparison import ComparedCurves
from batchscale.web.overview import OverviewRow
from batchscale.web.shelf import OpenRecords

KINDS = ("curves", "rates")
SIZES = {"curves": PanelSize(760, 420), "rates": PanelSize(430, 320)}  # two panels of rates fit a wide page
CURVES_TITLE = "Steps to result, each curve to its own goal"
RATE_TITLES = {"learning_rate": "Best learning rates", EFFECTIVE: "Best effective learning rates"}

_T = TypeVar("_T")


@dataclass(frozen=True)
class ComparisonWish:
    """Which chart of several curves; ``width`` is the room there is, in points."""

    kind: str
    normalised: bool = False
    theme: str = "light"
    width: int | None = None


def comparison_frame(shelf: OpenRecords, curves: ComparedCurves, wish: ComparisonWish) -> pl.DataFrame:
    """The data behind a chart.

    Raises:
        AnalysisError: no curve can be drawn, or they cannot be normalised.
    """
    if not curves.rows:
        raise AnalysisError("None of the chosen experiments has a curve to compare.")
    at = curves.require_common_size() if wish.normalised and wish.kind == "curves" else None
    frames = []
    for label, row in curves.rows.items():
        make = _rates(row, label) if wish.kind == "rates" else _curve(row, label, at)
        frames.append(shelf.answer(row.folder.path, f"compare {wish.kind} {row.number} {at} {label}", make))
    frame = pl.concat(frames, how="diagonal_relaxed")
    return _telling_panels(frame) if wish.kind == "rates" else frame


def comparison_drawing(shelf: OpenRecords, curves: ComparedCurves, wish: ComparisonWish) -> str:
    """The chart as SVG."""

    def work() -> str:
        chart = _plot(comparison_frame(shelf, curves, wish), wish)
        with RENDERING:
            return chart_svg(chart)

    return _kept(shelf, curves, wish, "svg", work)


def comparison_picture(shelf: OpenRecords, curves: ComparedCurves, wish: ComparisonWish) -> bytes:
    """The chart as PNG."""
    return picture_of(comparison_drawing(shelf, curves, wish))


def comparison_specification(shelf: OpenRecords, curves: ComparedCurves, wish: ComparisonWish) -> bytes:
    """The chart as JSON for the page's script, with axes that follow the pointer."""

    def work() -> bytes:
        spec = chart_spec(_plot(comparison_frame(shelf, curves, wish), wish))
        return json.dumps(explorable(spec, f"compare {wish.kind}")).encode()

    return _kept(shelf, curves, wish, "json", work)


def _kept(shelf: OpenRecords, curves: ComparedCurves, wish: ComparisonWish, ending: str, work: Callable[[], _T]) -> _T:
    """What was made of these curves, until the records of any of them change."""
    of = [(name, row.key, shelf.version(row.folder.path)) for name, row in curves.rows.items()]
    first = next(iter(curves.rows.values()), None)
    if first is None:
        return work()
    return shelf.answer(first.folder.path, f"compare {ending} {wish} {of}", lambda _: work())


def _curve(row: OverviewRow, label: str, at: int | None) -> Callable[[Records], pl.DataFrame]:
    def make(records: Records) -> pl.DataFrame:
        return series_frame(records, [CurvePanel(CURVES_TITLE, (_series(records, row, label),), at)])

    return make


def _rates(row: OverviewRow, label: str) -> Callable[[Records], pl.DataFrame]:
    def make(records: Records) -> pl.DataFrame:
        series = _series(records, row, label)
        frames = [
            metaparameter_frame(records, [CurvePanel(title, (series,))], name) for name, title in RATE_TITLES.items()
        ]
        return pl.concat(frames).with_columns(pl.lit(label).alias("series"))

    return make


def _series(records: Records, row: OverviewRow, label: str) -> Series:
    name = workload_at(records, row.number)
    return Series(name, require_goal(records, name), label)


def _telling_panels(frame: pl.DataFrame) -> pl.DataFrame:
    """The panels that tell something: without any momentum, effective rates are the rates again."""
    parts = frame.partition_by("panel", maintain_order=True)
    drawn = [part for part in parts if part["value"].drop_nulls().len()] or parts[:1]
    if len(drawn) > 1 and drawn[0]["value"].equals(drawn[1]["value"]):
        drawn = drawn[:1]
    return pl.concat(drawn)


def _plot(frame: pl.DataFrame, wish: ComparisonWish) -> Chart:
    look = fitting(Look(find_theme(wish.theme), columns=2, size=SIZES[wish.kind]), wish.width)
    return plot_rates(frame, look) if wish.kind == "rates" else plot_curves(frame, look)
