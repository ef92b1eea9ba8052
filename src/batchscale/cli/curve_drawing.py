"""A small drawing of a curve for the terminal: log-log, in braille dots, with the perfect-scaling line."""

import itertools
import math
from collections.abc import Mapping, Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_MARKS = {"measured": "●", "other": "○"}


def draw_curve(
    points: Sequence[tuple[int, float]],
    width: int = 56,
    height: int = 14,
    line: Sequence[tuple[int, float]] = (),
    others: Sequence[tuple[int, float]] = (),
) -> str:
    """Steps against batch size on logarithmic axes: ● for the points, ○ for others, dots for a line.

    >>> print(draw_curve([(1, 100), (10, 10)], width=11, height=3))
     100 ┤●
         │
      10 ┤          ●
         └───────────
          1         10
    """
    shown = [(x, y) for x, y in (*points, *others) if y > 0]
    if not shown:
        return "(nothing to draw)"
    xs, ys = [math.log(x) for x, _ in shown], [math.log(y) for _, y in shown]
    frame = _Frame(min(xs), max(xs), min(ys), max(ys), width, height)
    cells: dict[tuple[int, int], str] = {}
    _draw_line(frame, line, cells)
    for kind, found in (("other", others), ("measured", points)):
        for x, y in found:
            if y > 0:
                cells[frame.cell(math.log(x), math.log(y))] = _MARKS[kind]
    return "\n".join([*_rows(frame, cells), *_axis(frame, shown)])


class _Frame:
    def __init__(self, left: float, right: float, bottom: float, top: float, width: int, height: int) -> None:
        self.left, self.right = (left, right) if right > left else (left - 0.5, left + 0.5)
        self.bottom, self.top = (bottom, top) if top > bottom else (bottom - 0.5, bottom + 0.5)
        self.width, self.height = width, height

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Column and row, from the top left, as fractions of cells."""
        column = (x - self.left) / (self.right - self.left) * (self.width - 1)
        return column, (self.top - y) / (self.top - self.bottom) * (self.height - 1)

    def cell(self, x: float, y: float) -> tuple[int, int]:
        column, row = self.place(x, y)
        return round(column), round(row)


def _draw_line(frame: _Frame, line: Sequence[tuple[int, float]], cells: dict[tuple[int, int], str]) -> None:
    dots: dict[tuple[int, int], int] = {}
    for (x0, y0), (x1, y1) in itertools.pairwise(line):
        start, end = (math.log(x0), math.log(y0)), (math.log(x1), math.log(y1))
        count = 4 * frame.width
        for i in range(0, count + 1, 3):
            share = i / count
            column, row = frame.place(start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))
            dot_x, dot_y = round(column * 2 + 0.5), round(row * 4 + 1.5)
            cell = (dot_x // 2, dot_y // 4)
            if 0 <= cell[0] < frame.width and 0 <= cell[1] < frame.height:
                dots[cell] = dots.get(cell, 0) | _DOTS[dot_y % 4][dot_x % 2]
    cells.update({cell: chr(0x2800 + bits) for cell, bits in dots.items()})


def _rows(frame: _Frame, cells: Mapping[tuple[int, int], str]) -> list[str]:
    labels = {0: math.exp(frame.top), frame.height - 1: math.exp(frame.bottom)}
    middle = frame.height // 2
    if frame.height >= 7:
        labels[middle] = math.exp(frame.top - (frame.top - frame.bottom) * middle / (frame.height - 1))
    texts = {row: f"{value:,.0f}" for row, value in labels.items()}
    margin = max(4, *(len(text) for text in texts.values()))
    lines = []
    for row in range(frame.height):
        inside = "".join(cells.get((column, row), " ") for column in range(frame.width)).rstrip()
        edge = "┤" if row in texts else "│"
        lines.append(f"{texts.get(row, ''):>{margin}} {edge}{inside}".rstrip())
    lines.append(" " * margin + " └" + "─" * frame.width)
    return lines


def _axis(frame: _Frame, shown: Sequence[tuple[int, float]]) -> list[str]:
    margin = max(4, len(f"{math.exp(frame.top):,.0f}"), len(f"{math.exp(frame.bottom):,.0f}")) + 2
    text = [" "] * (margin + frame.width + 8)
    end = -1
    for x in sorted({x for x, _ in shown}):
        label, column = f"{x}", margin + frame.cell(math.log(x), frame.top)[0]
        if column > end:
            text[column : column + len(label)] = label
            end = column + len(label)
    return ["".join(text).rstrip()]
