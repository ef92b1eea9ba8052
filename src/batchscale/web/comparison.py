"""Curves of several places on one chart."""

from collections.abc import Mapping, Sequence

import polars as pl

from batchscale.analysis import Analysis, analyze, shared_sizes
from batchscale.errors import AnalysisError
from batchscale.figures import CurvePanel, Look, Series, Theme, chart_svg, plot_curves, series_frame
from batchscale.figures.layout import PanelSize
from batchscale.records import Records
from batchscale.web.charts import require_goal, workload_at
from batchscale.web.overview import OverviewRow
from batchscale.web.places import Place
from batchscale.web.shelf import OpenRecords

SIZE = PanelSize(640, 400)
TITLE = "Steps to result, each curve to its own goal"


def make_answers(shelf: OpenRecords, rows: Sequence[OverviewRow]) -> dict[str, Analysis]:
    """The analysis of every row, by a name that no two of them share."""
    return {name: analysis_of(shelf, row.place, row.number) for name, row in name_rows(rows).items()}


def name_rows(rows: Sequence[OverviewRow]) -> dict[str, OverviewRow]:
    """Rows by their workloads; those of the same workload by their places as well."""
    named: dict[str, OverviewRow] = {}
    for row in rows:
        twice = sum(other.workload == row.workload for other in rows) > 1
        named[f"{row.place.name}: {row.workload}" if twice else row.workload] = row
    return named


def analysis_of(shelf: OpenRecords, place: Place, number: int) -> Analysis:
    """The analysis of one workload of a place, kept until its records change."""

    def work(records: Records) -> Analysis:
        name = workload_at(records, number)
        return analyze(records, name, require_goal(records, name))

    return shelf.answer(place.path, f"analysis {number}", work)


def comparison_chart(shelf: OpenRecords, rows: Sequence[OverviewRow], theme: Theme, *, normalised: bool) -> str:
    """The curves as SVG, as measured or each over its own steps at the smallest batch size in common."""
    at = _common_size(make_answers(shelf, rows)) if normalised else None
    frames = []
    for label, row in name_rows(rows).items():
        records = shelf.records(row.place.path)
        name = workload_at(records, row.number)
        series = Series(name, require_goal(records, name), label)
        frames.append(series_frame(records, [CurvePanel(TITLE, (series,), at)]))
    return chart_svg(plot_curves(pl.concat(frames, how="diagonal_relaxed"), Look(theme=theme, size=SIZE)))


def _common_size(answers: Mapping[str, Analysis]) -> int:
    shared = shared_sizes({name: answer.curve for name, answer in answers.items()})
    if not shared:
        raise AnalysisError(
            "Curves are normalised at a batch size that all of them reached their goal at; there is none."
        )
    return shared[0]
