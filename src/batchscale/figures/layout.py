"""Panels: the scaffold of all charts, the grid of panels, and the notes on missing data."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import polars as pl
from altair.utils.schemapi import debug_mode

from batchscale.errors import one_line
from batchscale.figures.frames import goal_notes
from batchscale.figures.theme import LIGHT, Theme, vega_config

Chart = alt.Chart | alt.LayerChart | alt.ConcatChart | alt.HConcatChart | alt.VConcatChart


@dataclass(frozen=True)
class PanelSize:
    """Width and height of the plotting area of a panel, in points."""

    width: int = 300
    height: int = 230


WIDE = PanelSize(560, 360)
NORMAL = PanelSize(300, 230)
SMALL = PanelSize(215, 185)
MOST_NOTES = 6  # lines under a panel's title
MOST_REASONS = 12  # lines of a sentence on panels that are not drawn


@dataclass(frozen=True)
class Look:
    """The layout of a chart: its colours, a title over all panels, panels in a row, and the size of each.

    A bare chart has no titles and no notes: the page around it has them.
    """

    theme: Theme = LIGHT
    title: str | None = None
    columns: int = 3
    size: PanelSize = NORMAL
    is_bare: bool = False


@dataclass(frozen=True)
class Drawn:
    """The content of a panel: layers from the bottom up, notes under its title; ``size`` replaces the look's."""

    layers: Sequence[alt.Chart]
    notes: Sequence[str] = ()
    size: PanelSize | None = None


def draw_panels(
    frame: pl.DataFrame,
    panel: Callable[[pl.DataFrame, Look], Drawn | str],
    look: Look,
    *,
    of: str = "studies",
    one_legend: bool = False,
    notes: Sequence[str] = (),
    goals: bool = True,
) -> Chart:
    """Return a chart with a panel for each value of the column ``panel``.

    Args:
        frame: The rows of all panels, in their order.
        panel: Draws the rows of one panel, or returns the reason why there is nothing to draw. Empty panels are not
            drawn; a sentence over the chart names them with their reasons.
        look: The layout.
        of: The things that panels are for, in the plural, for the message if there is none.
        one_legend: True if all panels share colours, shapes and one legend.
        notes: Notes on all panels: over them, or under the title of the only one.
        goals: True to name the goals of the column ``goal``, once if all panels have the same.
    """
    contents: list[tuple[str, Drawn, list[str]]] = []
    empty: dict[str, list[str]] = {}
    parts = frame.partition_by("panel", maintain_order=True)
    named = goal_notes(frame) if goals else []
    common = named if named and all(goal_notes(part) in (named, []) for part in parts) else []
    notes = [] if look.is_bare else [*common, *notes]
    for part in parts:
        title, drawn = part["panel"][0], panel(part, look)
        if isinstance(drawn, str):
            empty.setdefault(drawn, []).append(title)
            continue
        own = goal_notes(part) if goals and not common else []
        contents.append((title, drawn, [*(notes if len(parts) == 1 else ()), *own, *drawn.notes]))
    charts = _with_titles(contents, look)
    lacking = [f"{name_panels(titles)}: {reason}" for reason, titles in empty.items()]
    if not charts and len(empty) == 1:  # what holds for all of them needs no names
        lacking = list(empty)
    if not charts:
        return finish(missing_panel(lacking or [f"no {of} to draw"], look), look)
    over = [*(notes if len(parts) > 1 else ()), *([f"Not drawn: {lacking[0]}", *lacking[1:]] if lacking else ())]
    grid = charts[0] if len(charts) == 1 and look.title is None and not over else _grid(charts, look, one_legend)
    return finish(grid, look, over)


def _with_titles(contents: Sequence[tuple[str, Drawn, list[str]]], look: Look) -> list[Chart]:
    """Return panels with their titles; those of a row have equally many lines, so that they stand at one height."""
    charts: list[Chart] = []
    for start in range(0, len(contents), look.columns):
        row = contents[start : start + look.columns]
        sizes = [drawn.size or look.size for _, drawn, _ in row]
        lines = [title_lines(title, notes, size.width) for (title, _, notes), size in zip(row, sizes, strict=True)]
        most = max(len(title) + len(subtitle) for title, subtitle in lines)
        for (_, drawn, _), size, (title, subtitle) in zip(row, sizes, lines, strict=True):
            blank = [" "] * (most - len(title) - len(subtitle))
            chart = alt.LayerChart(layer=list(drawn.layers), width=size.width, height=size.height)
            charts.append(chart if look.is_bare else chart.properties(title=_title(title, [*subtitle, *blank])))
    return charts


def name_panels(titles: Sequence[str]) -> str:
    """Return titles of panels as a short list: the text before their batch sizes appears once.

    >>> name_panels(["batch size 2", "batch size 8", "FC-64: batch size 2"])
    'batch size 2, 8; FC-64: batch size 2'
    """
    groups: dict[str, list[str]] = {}
    for title in titles:
        head, words, size = title.rpartition("batch size ")
        groups.setdefault(head + words, []).append(size)
    return "; ".join(head + ", ".join(sizes) for head, sizes in groups.items())


def inline(frame: pl.DataFrame) -> alt.InlineData:
    """Return a frame as rows inside the chart; what is not a number becomes null, which every mark leaves out."""
    floats = [name for name, kind in frame.schema.items() if kind.is_float()]
    finite = frame.with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)).alias(name) for name in floats)
    with debug_mode(False):  # Altair would check every row against its schema; the tests do, with small charts
        return alt.InlineData(values=tuple(finite.to_dicts()))  # and would copy a list with every layer


def panel_title(text: str, notes: Iterable[str] = (), width: int = 300) -> alt.TitleParams:
    """Return the title of a panel, with notes on what it lacks below it, broken into lines that fit."""
    return _title(*title_lines(text, notes, width))


def _title(title: list[str], subtitle: list[str]) -> alt.TitleParams:
    return alt.TitleParams(text=title, subtitle=subtitle) if subtitle else alt.TitleParams(text=title)


def title_lines(text: str, notes: Iterable[str], width: int) -> tuple[list[str], list[str]]:
    """Return the lines of a panel's title and those of the notes below it."""
    room = max(int(width / 4.6), 20)
    lines = [line for note in notes for line in _wrapped(one_line(note, 400), room)]
    if len(lines) > MOST_NOTES:
        lines = [*lines[: MOST_NOTES - 1], lines[MOST_NOTES - 1][: room - 1] + "…"]
    title = _wrapped(one_line(text, 200), max(int(width / 6.4), 20)) or [""]
    return title[:2], lines


def _wrapped(text: str, room: int) -> list[str]:
    """Return the text in lines; numbers of batch sizes and goals stay with the word before them."""
    for words in ("batch size ", "< ", "> "):
        text = text.replace(words, words.replace(" ", "\N{NO-BREAK SPACE}"))
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(text, room)]


def missing_panel(reasons: Sequence[str], look: Look) -> alt.Chart:
    """Return an empty panel with a note on what is missing."""
    width = max(look.size.width, WIDE.width)
    lines = _some_lines(reasons, int(width / 6.2))
    height = max(60, 15 * len(lines) + 30)
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=[{"message": lines}]))
        .mark_text(align="center", baseline="middle", fontSize=11, color=look.theme.muted, lineHeight=15)
        .encode(text="message:N", x=alt.value(width / 2), y=alt.value(height / 2 - 7.5 * (len(lines) - 1)))
        .properties(width=width, height=height)
    )
    return chart


def legend_below(title: str | None = None) -> alt.Legend:
    """Return one legend for all panels, in a row below them."""
    return alt.Legend(title=title, orient="bottom", direction="horizontal", titleAnchor="start", offset=10, columns=6)


def finish(chart: Chart, look: Look, notes: Sequence[str] = ()) -> Chart:
    """Return the chart with its theme's configuration and, if given, a title and notes over all panels."""
    done = chart.copy(deep=False)
    if look.title is not None or notes:
        lines = _some_lines(notes, 110)
        params: dict[str, Any] = {
            "anchor": "start",
            "frame": "bounds",
            "offset": 14,
            "lineHeight": 18,
            "subtitlePadding": 2,
        }
        if look.title is not None:
            params |= {"text": textwrap.wrap(one_line(look.title, 300), 90), "fontSize": 15}
        else:  # a subtitle needs a title; the first line of the note is it, in the note's own dress
            first, *lines = lines
            params |= {"text": first, "fontSize": 10.5, "fontWeight": "normal", "color": look.theme.muted}
        done = done.properties(title=alt.TitleParams(**params, subtitle=lines) if lines else alt.TitleParams(**params))
    done.config = alt.Config(**vega_config(look.theme))
    return done


def _grid(panels: Sequence[Chart], look: Look, one_legend: bool) -> Chart:
    """Return panels in rows; axes are each panel's own, colours and shapes too unless they have one legend."""
    marks: Literal["shared", "independent"] = "shared" if one_legend else "independent"
    grid: Chart = alt.concat(*panels, columns=look.columns).resolve_scale(
        x="independent", y="independent", color=marks, shape=marks, strokeDash=marks
    )
    return grid


def _some_lines(reasons: Sequence[str], room: int) -> list[str]:
    lines = [line for reason in reasons for line in textwrap.wrap(one_line(reason, 600), room)]
    more = len(lines) - MOST_REASONS
    return lines if more <= 0 else [*lines[:MOST_REASONS], f"… and {more} more lines; --csv has all of them"]
