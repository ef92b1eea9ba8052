"""The look of every chart: colours that all readers can distinguish, on light and dark ground, and text sizes.

The series colours are Okabe and Ito's eight, darkened or lightened until each has enough contrast with its ground.
Charts get their colours from a ``Theme`` and nothing else, so that a page can exchange them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from batchscale.errors import UnknownNameError, one_line, suggest_names

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
POWER_FONT = "Batchscale Powers, DejaVu Sans, Segoe UI, Arial, sans-serif"  # has every raised digit, see fonts/


@dataclass(frozen=True)
class Theme:
    """The colours of a chart. No colour is used twice, so that a drawing's colour identifies its role.

    Attributes:
        name: ``light`` or ``dark``.
        ground: behind everything.
        soft: behind what stands out on a page: cards, code.
        text: titles and labels of axes.
        muted: notes, ticks, and lines to compare with.
        grid: grid lines, and the edges of cards and tables.
        frame: lines of axes, and the edges of fields and buttons.
        shade: the regimes of a curve, two grounds laid behind it.
        good: trials that reached the goal.
        poor: trials that did not.
        bad: trials that diverged, and errors.
        solid: results that are well determined.
        doubt: results to be trusted less.
        star: the best trial.
        series: colours of unordered series.
        ramp: ends and middle of the colours of ordered series.
    """

    name: str
    ground: str
    soft: str
    text: str
    muted: str
    grid: str
    frame: str
    shade: tuple[str, str]
    good: str
    poor: str
    bad: str
    solid: str
    doubt: str
    star: str
    series: tuple[str, ...]
    ramp: tuple[str, ...]


LIGHT = Theme(
    name="light",
    ground="#ffffff",
    soft="#f6f7f9",
    text="#14171c",
    muted="#5a6371",
    grid="#e3e6eb",
    frame="#87909d",
    shade=("#e6f1fa", "#fdf2df"),
    good="#0071b1",
    poor="#a3a8ad",
    bad="#c4320a",
    solid="#137a4b",
    doubt="#a45b00",
    star="#f0c000",
    series=("#0072b2", "#d55e00", "#008b65", "#b8568e", "#b07800", "#3a9bd9", "#4d4d4d", "#7a5195"),
    ramp=("#0b2a66", "#2f7fb8", "#4fae8d", "#d9a400"),
)
DARK = Theme(
    name="dark",
    ground="#0f1216",
    soft="#171b21",
    text="#e9ecf1",
    muted="#9aa4b4",
    grid="#262c35",
    frame="#6b7482",
    shade=("#16273a", "#2e2416"),
    good="#56b4e8",
    poor="#7b828a",
    bad="#ff7a5c",
    solid="#4ecb8f",
    doubt="#f5b14c",
    star="#ffd83d",
    series=("#56b4e9", "#ff8a4c", "#2fcb9c", "#e59cc4", "#f0b93a", "#9fd5ff", "#d0d4d8", "#c3a0e0"),
    ramp=("#8fb4ff", "#5cc0e6", "#5fd6a8", "#ffd75e"),
)
THEMES: Mapping[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}


def find_theme(name: str) -> Theme:
    """Return the theme of this name."""
    if name not in THEMES:
        raise UnknownNameError(f"No theme '{one_line(name)}'; {suggest_names(name, THEMES)}")
    return THEMES[name]


def series_colours(theme: Theme, count: int, *, ordered: bool = False) -> list[str]:
    """Return one colour per series: from the palette, or along the ramp where the series have an order.

    >>> series_colours(LIGHT, 2)
    ['#0072b2', '#d55e00']
    """
    if not ordered and count <= len(theme.series):
        return list(theme.series[:count])
    if count == 1:
        return [theme.ramp[0]]
    return list(_ramp(theme.ramp, count))


def vega_config(theme: Theme) -> dict[str, Any]:
    """Return the Vega-Lite configuration of a theme: fonts, sizes, colours of everything that is not data."""
    axis = {
        "domainColor": theme.frame,
        "tickColor": theme.frame,
        "gridColor": theme.grid,
        "labelColor": theme.text,
        "titleColor": theme.text,
        "labelFontSize": 11,
        "titleFontSize": 11.5,
        "titleFontWeight": "normal",
        "titlePadding": 6,
        "labelLimit": 240,
    }
    legend = {
        "labelColor": theme.text,
        "titleColor": theme.text,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": 260,
        "symbolSize": 55,
        "symbolStrokeWidth": 1.5,
        "rowPadding": 1,
    }
    title = {
        "color": theme.text,
        "subtitleColor": theme.muted,
        "fontSize": 12.5,
        "fontWeight": 600,
        "subtitleFontSize": 10.5,
        "anchor": "start",
        "frame": "group",  # at the left of the panel, however wide the labels of its axis are
        "offset": 6,
        "lineHeight": 13.5,  # equal for titles and notes: equally many lines end at the same height
        "subtitleLineHeight": 13.5,
        "subtitlePadding": 0,
    }
    return {
        "background": theme.ground,
        "font": FONT,
        "padding": 12,
        "view": {"stroke": None, "continuousWidth": 300, "continuousHeight": 240},
        "axis": axis,
        "axisY": {"labelFlush": 6},  # a label above the panel would push its title up
        "legend": legend,
        "title": title,
        "text": {"color": theme.text, "fontSize": 11},
        "concat": {"spacing": 22},
    }


@lru_cache(maxsize=256)
def _ramp(colours: tuple[str, ...], count: int) -> tuple[str, ...]:
    return tuple(_along(colours, i / (count - 1)) for i in range(count))


def _along(colours: tuple[str, ...], place: float) -> str:
    position = place * (len(colours) - 1)
    index = min(int(position), len(colours) - 2)
    low, high = (_channels(colour) for colour in colours[index : index + 2])
    mixed = (a + (b - a) * (position - index) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{round(channel):02x}" for channel in mixed)


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
