"""Several curves beside each other: their analyses, names and best learning rates, and charts of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from batchscale.analysis.comparison import shared_sizes
from batchscale.analysis.curve_analysis import Analysis, analyze
from batchscale.analysis.metaparameters import EFFECTIVE
from batchscale.errors import AnalysisError, BatchscaleError
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.figures.kinds.curves import plot_curves
from batchscale.figures.kinds.metaparameter import metaparameter_frame, plot_rates
from batchscale.figures.layout import Chart, Look, PanelSize
from batchscale.figures.series import CurvePanel, Series, series_frame
from batchscale.figures.theme import find_theme
from batchscale.records.frames import Records
from batchscale.web.charts import RENDERING, explorable, fitting, picture_of, require_goal, workload_at
from batchscale.web.overview import OverviewRow
from batchscale.web.records_cache import RecordsCache
from batchscale.web.records_folders import RecordsFolder, visible

KINDS = ("curves", "rates")
SIZES = {"curves": PanelSize(760, 420), "rates": PanelSize(430, 320)}  # two panels of rates fit a wide page
CURVES_TITLE = "Steps to result, each curve to its own goal"
RATE_TITLES = {"learning_rate": "Best learning rates", EFFECTIVE: "Best effective learning rates"}

_T = TypeVar("_T")
NOT_SHARED = "Curves are normalised at a batch size at which all of them reached their goal; these share none."


@dataclass(frozen=True)
class ComparedCurves:
    """Rows with a curve, and their analyses, by unique names; ``left_out`` has the reasons why others have none."""

    rows: Mapping[str, OverviewRow]
    answers: Mapping[str, Analysis]
    left_out: Mapping[str, str]

    @property
    def common_size(self) -> int | None:
        """The smallest batch size at which every curve reached its goal; None if they share none."""
        shared = shared_sizes({name: answer.curve for name, answer in self.answers.items()})
        return shared[0] if shared else None

    def require_common_size(self) -> int:
        """Return the batch size at which curves are normalised.

        Raises:
            AnalysisError: they share none.
        """
        size = self.common_size
        if size is None:
            raise AnalysisError(NOT_SHARED)
        return size


def make_curves(cache: RecordsCache, rows: Sequence[OverviewRow]) -> ComparedCurves:
    """Return the analysis of every row that has a curve."""
    with_curve: dict[str, OverviewRow] = {}
    answers: dict[str, Analysis] = {}
    left_out: dict[str, str] = {}
    for name, row in name_rows(rows).items():
        try:
            answers[name] = analysis_of(cache, row.folder, row.number)
            with_curve[name] = row
        except BatchscaleError as error:
            left_out[name] = visible(error, 400)
    return ComparedCurves(with_curve, answers, left_out)


def name_rows(rows: Sequence[OverviewRow]) -> dict[str, OverviewRow]:
    """Return rows by workload, and by folder as well if several are of the same workload; a row counts once."""
    named: dict[str, OverviewRow] = {}
    once = list({row.key: row for row in rows}.values())
    for row in once:
        twice = sum(other.workload == row.workload for other in once) > 1
        named[f"{row.folder.name}: {row.workload}" if twice else row.workload] = row
    return named


def analysis_of(cache: RecordsCache, folder: RecordsFolder, number: int) -> Analysis:
    """Return the analysis of one workload of a folder, cached until its records change."""

    def work(records: Records) -> Analysis:
        name = workload_at(records, number)
        return analyze(records, name, require_goal(records, name))

    return cache.result(folder.path, f"analysis {number}", work)


def best_rates(answers: Mapping[str, Analysis]) -> list[tuple[str, dict[int, float]]]:
    """Return the winning learning rate by batch size, for each curve that has learning rates."""
    return [
        (name, {size: rate for size, rate in answer.curve.select("batch_size", "learning_rate").rows() if rate})
        for name, answer in answers.items()
        if "learning_rate" in answer.curve.columns
    ]


@dataclass(frozen=True)
class ComparisonQuery:
    """A kind of chart of several curves; ``width`` is the width of the page in points."""

    kind: str
    normalised: bool = False
    theme: str = "light"
    width: int | None = None


def comparison_frame(cache: RecordsCache, curves: ComparedCurves, query: ComparisonQuery) -> pl.DataFrame:
    """Return the data of a chart.

    Raises:
        AnalysisError: no curve can be drawn, or they cannot be normalised.
    """
    if not curves.rows:
        raise AnalysisError("None of the selected experiments has a curve to compare.")
    at = curves.require_common_size() if query.normalised and query.kind == "curves" else None
    frames = []
    for label, row in curves.rows.items():
        make = _rates(row, label) if query.kind == "rates" else _curve(row, label, at)
        frames.append(cache.result(row.folder.path, f"compare {query.kind} {row.number} {at} {label}", make))
    frame = pl.concat(frames, how="diagonal_relaxed")
    return _distinct_panels(frame) if query.kind == "rates" else frame


def comparison_drawing(cache: RecordsCache, curves: ComparedCurves, query: ComparisonQuery) -> str:
    """Return the chart as SVG."""

    def work() -> str:
        chart = _plot(comparison_frame(cache, curves, query), query)
        with RENDERING:
            return chart_svg(chart)

    return _cached(cache, curves, query, "svg", work)


def comparison_picture(cache: RecordsCache, curves: ComparedCurves, query: ComparisonQuery) -> bytes:
    """Return the chart as PNG."""
    return picture_of(comparison_drawing(cache, curves, query))


def comparison_specification(cache: RecordsCache, curves: ComparedCurves, query: ComparisonQuery) -> bytes:
    """Return the chart as JSON for the page's script, with axes that can be moved and zoomed."""

    def work() -> bytes:
        spec = chart_spec(_plot(comparison_frame(cache, curves, query), query))
        return json.dumps(explorable(spec, f"compare {query.kind}")).encode()

    return _cached(cache, curves, query, "json", work)


def _cached(
    cache: RecordsCache, curves: ComparedCurves, query: ComparisonQuery, suffix: str, work: Callable[[], _T]
) -> _T:
    """Return what ``work`` makes of these curves, cached until the records of any of them change."""
    of = [(name, row.key, cache.version(row.folder.path)) for name, row in curves.rows.items()]
    first = next(iter(curves.rows.values()), None)
    if first is None:
        return work()
    return cache.result(first.folder.path, f"compare {suffix} {query} {of}", lambda _: work())


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


def _distinct_panels(frame: pl.DataFrame) -> pl.DataFrame:
    """Drop panels without new values: without momentum, effective rates equal the rates."""
    parts = frame.partition_by("panel", maintain_order=True)
    drawn = [part for part in parts if part["value"].drop_nulls().len()] or parts[:1]
    if len(drawn) > 1 and drawn[0]["value"].equals(drawn[1]["value"]):
        drawn = drawn[:1]
    return pl.concat(drawn)


def _plot(frame: pl.DataFrame, query: ComparisonQuery) -> Chart:
    look = fitting(Look(find_theme(query.theme), columns=2, size=SIZES[query.kind]), query.width)
    return plot_rates(frame, look) if query.kind == "rates" else plot_curves(frame, look)
