"""A curve drawn with characters: points, perfect scaling, the critical batch size, and the regimes below."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchscale.formatting import whole_text

if TYPE_CHECKING:
    from batchscale.analysis.regimes import RegimeSpan

DrawnPoints = Sequence[tuple[int, float]]
_BRAILLE_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_REGIMES = {  # longest first: the first that fits is written
    "perfect scaling": ("perfect scaling", "perfect"),
    "diminishing returns": ("diminishing returns", "diminishing"),
    "maximal data parallelism": ("no further gain", "no gain"),
}


@dataclass(frozen=True)
class Drawing:
    """The parts of a drawing.

    Attributes:
        points: Batch sizes and steps, marked ●.
        line: Perfect scaling, as braille dots.
        others: Further points, marked ○.
        critical: The critical batch size, a dotted line down; None without.
        spans: The regimes, named below the axis.
        label: Writes a batch size below the axis.
    """

    points: DrawnPoints
    line: DrawnPoints = ()
    others: DrawnPoints = ()
    critical: float | None = None
    spans: "Sequence[RegimeSpan]" = ()
    label: Callable[[float], str] = whole_text


def draw_curve(drawing: Drawing, width: int = 56, height: int = 14) -> str:
    """Draw steps against batch size on logarithmic axes.

    >>> print(draw_curve(Drawing([(1, 100), (10, 10)], critical=3.2), width=11, height=3))
     100 ┤●    ┊
         │     ┊
      10 ┤     ┊    ●
         └─────┴─────
          1         10
    """
    drawn = [(x, y) for x, y in (*drawing.points, *drawing.others) if y > 0]
    if not drawn:
        return "(nothing to draw)"
    xs, ys = [math.log(x) for x, _ in drawn], [math.log(y) for _, y in drawn]
    frame = _Frame(min(xs), max(xs), min(ys), max(ys), width, height)
    cells = _draw_line(frame, drawing.line)
    bend = frame.column(drawing.critical)
    if bend is not None:
        cells |= {(bend, row): "┊" for row in range(height) if (bend, row) not in cells}
    for mark, marked in (("○", drawing.others), ("●", drawing.points)):
        for x, y in marked:
            if y > 0:
                cells[frame.cell(math.log(x), math.log(y))] = mark
    axis = _draw_axis(frame, {x: drawing.label(x) for x, _ in sorted(drawn)})
    regimes = _draw_regimes(frame, drawing.spans)
    return "\n".join([*_draw_rows(frame, cells, bend), axis, *([regimes] if regimes else [])])


class _Frame:
    """The mapping from logarithms of batch size and steps to the character cells of a drawing."""

    def __init__(self, left: float, right: float, bottom: float, top: float, width: int, height: int) -> None:
        self.left, self.right = (left, right) if right > left else (left - 0.5, left + 0.5)
        self.bottom, self.top = (bottom, top) if top > bottom else (bottom - 0.5, bottom + 0.5)
        self.width, self.height = width, height
        middle = height // 2
        labels = {0: self.top, height - 1: self.bottom}
        if height >= 7:
            labels[middle] = self.top - (self.top - self.bottom) * middle / (height - 1)
        self.labels = {row: f"{math.exp(value):,.0f}" for row, value in labels.items()}
        self.margin = max(4, *map(len, self.labels.values()))

    def position(self, x: float, y: float) -> tuple[float, float]:
        """Return column and row from the top left, as fractions of cells."""
        column = (x - self.left) / (self.right - self.left) * (self.width - 1)
        return column, (self.top - y) / (self.top - self.bottom) * (self.height - 1)

    def cell(self, x: float, y: float) -> tuple[int, int]:
        column, row = self.position(x, y)
        return round(column), round(row)

    def column(self, batch_size: float | None) -> int | None:
        """Return the column of a batch size; None outside of the drawing."""
        if batch_size is None or batch_size <= 0:
            return None
        column = self.cell(math.log(batch_size), self.top)[0]
        return column if 0 <= column < self.width else None


def _draw_line(frame: _Frame, line: DrawnPoints) -> dict[tuple[int, int], str]:
    dots: dict[tuple[int, int], int] = {}
    for (x0, y0), (x1, y1) in itertools.pairwise(line):
        start, end = (math.log(x0), math.log(y0)), (math.log(x1), math.log(y1))
        count = 4 * frame.width
        for i in range(0, count + 1, 3):
            share = i / count
            x, y = start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])
            column, row = frame.position(x, y)
            dot_x, dot_y = round(column * 2 + 0.5), round(row * 4 + 1.5)
            cell = (dot_x // 2, dot_y // 4)
            if 0 <= cell[0] < frame.width and 0 <= cell[1] < frame.height:
                dots[cell] = dots.get(cell, 0) | _BRAILLE_BITS[dot_y % 4][dot_x % 2]
    return {cell: chr(0x2800 + bits) for cell, bits in dots.items()}


def _draw_rows(frame: _Frame, cells: Mapping[tuple[int, int], str], bend: int | None) -> list[str]:
    lines = []
    for row in range(frame.height):
        inside = "".join(cells.get((column, row), " ") for column in range(frame.width)).rstrip()
        edge = "┤" if row in frame.labels else "│"
        lines.append(f"{frame.labels.get(row, ''):>{frame.margin}} {edge}{inside}".rstrip())
    axis = "".join("┴" if column == bend else "─" for column in range(frame.width))
    return [*lines, f"{'':>{frame.margin}} └{axis}"]


def _draw_axis(frame: _Frame, labels: Mapping[int, str]) -> str:
    start = frame.margin + 2
    text = [" "] * (start + frame.width + 8)
    end = -1
    for size, label in labels.items():
        column = start + frame.cell(math.log(size), frame.top)[0]
        if column > end:
            text[column : column + len(label)] = label
            end = column + len(label)
    return "".join(text).rstrip()


def _draw_regimes(frame: _Frame, spans: "Sequence[RegimeSpan]") -> str:
    """Return a row with the regimes and their ends; empty without any."""
    text = [" "] * frame.width
    for span in spans:
        first, last = frame.column(span.start), frame.column(span.end)
        names = _REGIMES.get(span.regime.value)
        if first is None or last is None or last - first < 2:
            continue
        inside = last - first - 1
        label = next((f" {name} " for name in names or () if len(name) + 2 <= inside), "")
        fill = "─" if names else "·"
        text[first] = "┼" if text[first] == "┤" else "├"
        text[last] = "┤"
        text[first + 1 : last] = label.center(inside, fill)
    return (" " * (frame.margin + 2) + "".join(text)).rstrip() if any(mark != " " for mark in text) else ""
