"""Panels: how charts are put beside each other, and how a panel says what it lacks."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import polars as pl

from batchscale.errors import one_line
from batchscale.figures.theme import Theme, vega_config

Chart = alt.Chart | alt.LayerChart | alt.ConcatChart | alt.HConcatChart | alt.VConcatChart


@dataclass(frozen=True)
class PanelSize:
    """Width and height of the plotting area of a panel, in points."""

    width: int = 300
    height: int = 230


WIDE = PanelSize(560, 360)
NORMAL = PanelSize(300, 230)
SMALL = PanelSize(215, 185)


def inline(frame: pl.DataFrame) -> alt.InlineData:
    """A frame as rows inside the chart; what is not a number becomes null, which every mark leaves out."""
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    finite = frame.with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in floats)
    return alt.InlineData(values=finite.to_dicts())


def panel_title(text: str, notes: Iterable[str] = (), width: int = 300) -> alt.TitleParams:
    """The title of a panel, with notes on what it lacks below it, broken into lines that fit."""
    room = max(int(width / 5.2), 20)
    lines = [line for note in notes for line in textwrap.wrap(one_line(note, 400), room)]
    if len(lines) > 4:
        lines = [*lines[:3], lines[3][: room - 1] + "…"]
    title = textwrap.wrap(one_line(text, 200), max(int(width / 6.4), 20)) or [""]
    return alt.TitleParams(text=title[:2], subtitle=lines) if lines else alt.TitleParams(text=title[:2])


def missing_panel(title: str, message: str, theme: Theme, size: PanelSize = NORMAL) -> alt.Chart:
    """An empty panel that says what is missing."""
    lines = textwrap.wrap(one_line(message, 400), max(int(size.width / 6.2), 16))
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=[{"message": lines}]), title=panel_title(title, (), size.width))
        .mark_text(align="center", baseline="middle", fontSize=11, color=theme.muted, lineHeight=15)
        .encode(text="message:N", x=alt.value(size.width / 2), y=alt.value(size.height / 2 - 7.5 * (len(lines) - 1)))
        .properties(width=size.width, height=size.height)
    )
    return chart


def layered(layers: Sequence[alt.Chart], title: alt.TitleParams, size: PanelSize) -> alt.LayerChart:
    """Layers of one panel, the first at the bottom."""
    return alt.LayerChart(layer=list(layers), width=size.width, height=size.height, title=title)


def panel_grid(panels: Sequence[Chart], columns: int, *, one_legend: bool = False) -> Chart:
    """Panels in rows of ``columns``; axes are each panel's own, colours and shapes too unless they have one legend."""
    if len(panels) == 1:
        return panels[0]
    marks: Literal["shared", "independent"] = "shared" if one_legend else "independent"
    grid: Chart = alt.concat(*panels, columns=columns).resolve_scale(
        x="independent", y="independent", color=marks, shape=marks, strokeDash=marks
    )
    return grid


def legend_below(title: str | None = None) -> alt.Legend:
    """One legend for all panels, in a row below them."""
    return alt.Legend(title=title, orient="bottom", direction="horizontal", titleAnchor="start", offset=10, columns=6)


def finish(chart: Chart, theme: Theme, title: str | None = None, notes: Sequence[str] = ()) -> Chart:
    """The chart with its theme's configuration and, if given, a title over all panels."""
    done = chart.copy(deep=False)
    if title is not None:
        lines = [line for note in notes for line in textwrap.wrap(one_line(note, 600), 110)]
        text = textwrap.wrap(one_line(title, 300), 90)
        params: dict[str, Any] = {"text": text, "fontSize": 15, "anchor": "start", "offset": 14}
        done = done.properties(title=alt.TitleParams(**params, subtitle=lines) if lines else alt.TitleParams(**params))
    done.config = alt.Config(**vega_config(theme))
    return done
