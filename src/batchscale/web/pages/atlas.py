"""The atlas of public curves: a table to filter and sort, two charts, and the curves most like an experiment."""

import json
from dataclasses import replace
from typing import Annotated, Any, Literal

import polars as pl
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from batchscale.analysis.curve_analysis import Analysis
from batchscale.atlas.curve import KINDS, model_kind
from batchscale.atlas.similar import OwnCurve, find_similar, make_prior, prior_sentences
from batchscale.atlas.sources import SOURCES
from batchscale.atlas.table import Atlas, read_atlas
from batchscale.errors import BatchscaleError
from batchscale.figures import atlas_sizes
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.figures.kinds import atlas as atlas_kind
from batchscale.figures.layout import Chart
from batchscale.figures.theme import find_theme
from batchscale.web.charts import RENDERING, explorable, fitting, nearest_width, picture_of
from batchscale.web.comparison import analysis_of
from batchscale.web.pages.charts import WIDTH, ChartContent, chart_response
from batchscale.web.pages.params import find_row
from batchscale.web.records_folders import visible
from batchscale.web.server_parts import ServerParts

ORDERS = ("label", "source", "b_opt", "b_crit", "used", "parameters")
SEARCHED = ("label", "optimizer", "goal", "dataset", "model")
MAX_OTHERS = 500
FilterText = Annotated[str, Query(max_length=100)]


def make_routes(parts: ServerParts) -> APIRouter:
    """``/atlas`` and its charts."""
    routes = APIRouter()

    def own_curve(key: str) -> Analysis:
        row = find_row(parts, key)
        return analysis_of(parts.cache, row.folder, row.number)

    @routes.get("/atlas")
    def page(
        request: Request,
        q: FilterText = "",
        kind: FilterText = "",
        source: FilterText = "",
        k: FilterText = "",
        order: FilterText = "b_crit",
        down: bool = False,
        all_: Annotated[bool, Query(alias="all")] = False,
    ) -> Response:
        atlas = read_atlas()
        shown = _select(atlas, q, kind, source, all_=all_)
        rows = shown.curves.sort(order if order in ORDERS else "b_crit", descending=down, nulls_last=True)
        others = [row for row in parts.overview.rows() if row.points]
        values: dict[str, Any] = {"neighbours": [], "advice": [], "problem": "", "own": None}
        if k:
            values["own"] = find_row(parts, k)
            try:
                values |= _similar(atlas, own_curve(k))
            except BatchscaleError as error:
                values["problem"] = visible(error, 400)
        return parts.pages.page(
            request, "atlas.html", rows=rows.to_dicts(), total=len(atlas.curves), kinds=KINDS,
            others=others[:MAX_OTHERS],
            sources=[SOURCES[name] for name in atlas.curves["source"].unique(maintain_order=True)],
            q=q, kind=kind, source=source, k=k, order=order, down=down, everything=all_, **values,
        )  # fmt: skip

    @routes.get("/atlas/{chart}.{suffix}")
    def drawing(
        chart: Literal["curves", "sizes"],
        suffix: Literal["svg", "png", "csv", "json"],
        q: FilterText = "",
        kind: FilterText = "",
        source: FilterText = "",
        k: FilterText = "",
        all_: Annotated[bool, Query(alias="all")] = False,
        theme: Literal["light", "dark"] = "light",
        width: WIDTH = None,
        save: bool = False,
    ) -> Response:
        shown = _select(read_atlas(), q, kind, source, all_=all_)
        own = [own_curve(k)] if k else []
        frame = atlas_kind.atlas_frame(shown, own) if chart == "curves" else atlas_sizes.sizes_frame(shown, own)
        content = _content(frame, chart, suffix, theme, nearest_width(width))
        return chart_response(content, f"atlas-{chart}.{suffix}", save=save)

    return routes


def _select(atlas: Atlas, text: str, kind: str, source: str, *, all_: bool) -> Atlas:
    """Return the curves whose names contain the text, of a kind and a source; empty: any."""
    rows = atlas.curves if all_ else atlas.curves.filter("main")
    if text:
        names = [pl.col(name).str.to_lowercase().str.contains(text.lower(), literal=True) for name in SEARCHED]
        rows = rows.filter(pl.any_horizontal(names))
    for name, value in (("kind", kind), ("source", source)):
        rows = rows.filter(pl.col(name) == value) if value else rows
    return atlas.select(rows)


def _similar(atlas: Atlas, answer: Analysis) -> dict[str, Any]:
    name = answer.workload
    own = OwnCurve(summary=answer.summary)
    if name is not None:
        own = OwnCurve(name.dataset, name.model, name.optimizer, model_kind(name.model), answer.summary)
    neighbours = find_similar(atlas, own)
    return {"neighbours": neighbours, "advice": prior_sentences(make_prior(neighbours))}


def _content(frame: pl.DataFrame, chart: str, suffix: str, theme: str, width: int | None) -> ChartContent:
    if suffix == "csv":
        return frame
    drawn = _plot(frame, chart, theme, width)
    if suffix == "json":
        return json.dumps(explorable(chart_spec(drawn), f"atlas {chart}")).encode()
    with RENDERING:
        svg = chart_svg(drawn)
    return picture_of(svg) if suffix == "png" else svg


def _plot(frame: pl.DataFrame, chart: str, theme: str, width: int | None) -> Chart:
    look = atlas_kind.LOOK if chart == "curves" else atlas_sizes.LOOK
    look = fitting(replace(look, theme=find_theme(theme)), width)
    return atlas_kind.plot_atlas(frame, look) if chart == "curves" else atlas_sizes.plot_sizes(frame, look)
