"""Marks that charts against batch size share: intervals of points, and bands and lines at a batch size with a label."""

import math
from dataclasses import dataclass, replace

import altair as alt
import polars as pl

from batchscale.figures.axes import LogRange, log_scale
from batchscale.figures.layout import WIDE, Look, PanelSize, inline
from batchscale.figures.theme import Theme

LETTER = 5.8  # the mean width of a letter of a label, in points
LABEL_SIZE = 11
LINE_HEIGHT = 13


@dataclass(frozen=True)
class SizeMark:
    """A batch size to mark: a line at its value, a band over its interval, and a label beside the line.

    ``low`` or ``high`` is None for an end that is left open; the band then runs to the edge of the panel. ``row``
    counts the lines of labels from the bottom of the panel.
    """

    label: str
    colour: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    is_dashed: bool = False
    row: int = 0


def alone_or_small(look: Look, default: Look, frame: pl.DataFrame) -> Look:
    """Return the look for a frame: a default look gets a wide panel for one workload and smaller ones for several."""
    if look != replace(default, theme=look.theme, is_bare=look.is_bare):
        return look
    return replace(look, size=WIDE if frame["panel"].n_unique() == 1 else PanelSize(380, 280))


def with_room(span: LogRange, height: int, *, above: float = 0, below: float = 0) -> LogRange:
    """Return a range with room for labels: points above and below, of a panel of that height.

    >>> with_room(LogRange(0, 8), 100, above=20)
    LogRange(low=0.0, high=10.0, base=2)
    """
    per_point = (span.high - span.low) / max(height - above - below, 1)
    return replace(span, low=round(span.low - below * per_point, 6), high=round(span.high + above * per_point, 6))


def interval_bars(
    points: pl.DataFrame, ends: tuple[str, str], theme: Theme, x: alt.X, y_span: LogRange
) -> list[alt.Chart]:
    """Return a bar over the interval of every point that has one; ``ends`` are its columns."""
    bounded = points.drop_nulls(list(ends))
    if bounded.is_empty():
        return []
    bars = alt.Chart(inline(bounded)).mark_rule(
        color=theme.series[0], strokeWidth=6, strokeOpacity=0.25, strokeCap="round", aria=False, clip=True
    )
    return [bars.encode(x=x, y=alt.Y(f"{ends[0]}:Q", scale=log_scale(y_span)), y2=f"{ends[1]}:Q")]


def draw_marks(marks: list[SizeMark], x_span: LogRange, size: PanelSize, top: float = 0) -> list[alt.Chart]:
    """Return the bands below the lines below the labels of all marks; what lies outside the axis is left out.

    ``top`` is the distance of bands and lines from the upper edge of the panel.
    """
    bands, lines, labels = [], [], []
    first, last = x_span.domain
    x, y, y2 = alt.X("at:Q", scale=log_scale(x_span)), alt.value(top), alt.value(size.height)
    for mark in marks:
        low, high = max(mark.low or first, first), min(mark.high or last, last)
        if (mark.low is not None or mark.high is not None) and low < high:
            data = alt.Chart(alt.InlineData(values=[{"at": low, "to": high}]))
            bands.append(data.mark_rect(color=mark.colour, opacity=0.14, aria=False).encode(x=x, x2="to:Q", y=y, y2=y2))
        at = mark.value if mark.value is not None else high if mark.low is None else low
        if not first <= at <= last:
            continue
        data = alt.Chart(alt.InlineData(values=[{"at": at}]))
        if mark.value is not None:
            dash = [4, 4] if mark.is_dashed else [1, 0]
            line = data.mark_rule(color=mark.colour, strokeWidth=1.5, strokeDash=dash, aria=False)
            lines.append(line.encode(x=x, y=y, y2=y2))
        labels.append(_label(data, mark, (math.log(at, x_span.base) - x_span.low) / (x_span.high - x_span.low), size))
    return [*bands, *lines, *(label.encode(x=x) for label in labels)]


def _label(data: alt.Chart, mark: SizeMark, place: float, size: PanelSize) -> alt.Chart:
    """Return the label at the foot of a line: on its left, where a falling curve leaves room, or else on its right.

    In two lines where it fits neither side in one.
    """
    head, _, tail = mark.label.rpartition(" ")
    room, needed = place * size.width, LETTER * len(mark.label) + 8
    lines = [mark.label] if max(room, size.width - room) >= needed else [head, tail]
    is_left = room >= LETTER * max(map(len, lines)) + 8
    text: alt.Chart = data.mark_text(
        text=lines if len(lines) > 1 else mark.label, lineHeight=LINE_HEIGHT, dy=-LINE_HEIGHT * (len(lines) - 1),
        align="right" if is_left else "left", dx=-6 if is_left else 6, baseline="bottom", fontSize=LABEL_SIZE,
        color=mark.colour, aria=False,
    ).encode(y=alt.value(size.height - 6 - mark.row * LINE_HEIGHT))  # fmt: skip
    return text
