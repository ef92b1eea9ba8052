"""Logarithmic axes: ticks at measured batch sizes where they fit, else at powers, written as powers: 2⁰ 2⁴ 2⁸.

Owns the places of ticks and their labels. Ranges are computed here and not left to the renderer, so that a
chart looks alike in every output and panels can share a range.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from batchscale.analysis.units import EXAMPLES, SizeUnit
from batchscale.figures.theme import FONT, POWER_FONT

_DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹"


@dataclass(frozen=True)
class LogRange:
    """The exponents between which an axis runs, and its base."""

    low: float
    high: float
    base: int = 2

    @property
    def domain(self) -> list[float]:
        """The ends of the axis as values."""
        return [self.base**self.low, self.base**self.high]


def superscript(exponent: int) -> str:
    """Return a whole number as raised digits.

    >>> superscript(-12)
    '⁻¹²'
    """
    raised = "".join(_DIGITS[int(digit)] for digit in str(abs(exponent)))
    return ("⁻" if exponent < 0 else "") + raised


def log_range(values: Iterable[float | None], base: int = 2, margin: float = 0.35, least: float = 2.0) -> LogRange:
    """Return a range that holds all positive values, with a margin, and at least ``least`` powers wide.

    >>> log_range([1, 1024]).high
    10.35
    """
    exponents = [math.log(value, base) for value in values if value is not None and 0 < value < math.inf]
    if not exponents:
        return LogRange(0, 10 if base == 2 else 3, base)
    low, high = min(exponents) - margin, max(exponents) + margin
    missing = max(0.0, least - (high - low)) / 2
    return LogRange(round(low - missing, 6), round(high + missing, 6), base)


def power_ticks(span: LogRange, at_most: int = 8) -> list[float]:
    """Return whole powers inside a range, evenly spaced, not more than ``at_most``.

    >>> power_ticks(LogRange(0.5, 16.9))
    [4, 16, 64, 256, 1024, 4096, 16384, 65536]
    """
    # A label at the very end would stick out of the panel and push its title away.
    inset = 0.03 * (span.high - span.low)
    low, high = math.ceil(span.low + inset), math.floor(span.high - inset)
    for spacing in (1, 2, 3, 4, 5, 8, 10, 16, 20, 32, 64, 128, 256, 512):
        first = math.ceil(low / spacing) * spacing
        exponents = range(first, high + 1, spacing)
        if len(exponents) <= at_most + 1:
            return [span.base**exponent for exponent in exponents]
    return [span.base**low]


def log_scale(span: LogRange) -> alt.Scale:
    """Return the logarithmic scale of a range."""
    return alt.Scale(type="log", base=span.base, domain=span.domain, nice=False)


def between_ticks(span: LogRange) -> list[float]:
    """Return ticks of a range with few whole powers of ten: as few digits of each power as give three ticks.

    >>> between_ticks(LogRange(-1.9, -0.2, 10)), between_ticks(LogRange(-3.9, -1.5, 10))
    ([0.03, 0.1, 0.3], [0.0003, 0.001, 0.003, 0.01, 0.03])
    """
    low, high = (round(end, 9) for end in (span.low, span.high))
    for digits in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10))):
        ticks = [
            float(f"{digit}e{power}")
            for power in range(math.floor(low), math.ceil(high) + 1)
            for digit in digits
            if low <= power + math.log10(digit) <= high
        ]
        if len(ticks) > 2:
            return ticks
    return ticks


def size_axis(
    span: LogRange,
    sizes: Iterable[float | None],
    width: int,
    *,
    unit: SizeUnit = EXAMPLES,
    grid: bool = True,
) -> alt.Axis:
    """Return an axis of batch sizes: the measured ones as ticks where their labels fit into the width, else powers."""
    title = f"batch size ({unit.noun})"
    measured = sorted({int(size) for size in sizes if size is not None and size > 0})
    places = [(math.log(size, span.base) - span.low) / (span.high - span.low) * width for size in measured]
    plain = "format(datum.value, ',')" if unit == EXAMPLES else _lookup({size: unit.short(size) for size in measured})
    texts: list[tuple[Callable[[float], str], float, str]] = [(unit.short, 6.0, plain)]
    texts += [(_power_text, 5.0, power_expression(span.base))] if unit == EXAMPLES else []
    for text, letter, expression in texts:
        labels = [text(size) for size in measured]
        halves = [len(label) * letter / 2 for label in labels]
        gaps = (b - a - i - j for a, b, i, j in zip(places, places[1:], halves, halves[1:], strict=False))
        if measured and all(labels) and all(gap >= 5 for gap in gaps):
            return _axis(title, measured, expression, grid=grid)
    if unit == EXAMPLES:
        return log_axis(title, span, max(4, width // 45), grid=grid)
    ticks = power_ticks(span, max(4, width // 45))
    return _axis(title, ticks, _lookup({tick: unit.short(tick) for tick in ticks}), grid=grid)


def _lookup(labels: Mapping[float, str]) -> str:
    """Return the Vega expression that writes each tick as its label."""
    pairs = ", ".join(f"'{tick}': '{label}'" for tick, label in labels.items())
    return f"{{{pairs}}}[datum.value]"


def log_axis(title: str | None, span: LogRange, at_most: int = 8, *, grid: bool = True) -> alt.Axis:
    """Return an axis with powers as ticks and labels; if fewer than three powers of ten fit, with numbers between."""
    ticks = power_ticks(span, at_most)
    if span.base == 10 and len(ticks) < 3:
        return _axis(title, between_ticks(span), "format(datum.value, '~g')", grid=grid, overlap="greedy")
    return _axis(title, ticks, power_expression(span.base), grid=grid)


def number_axis(title: str | None, span: LogRange, at_most: int = 7) -> alt.Axis:
    """Return an axis with ticks at 1, 3, 10, 30 … (or at powers of ten, where these are many), as plain numbers."""
    tens = LogRange(math.log10(span.domain[0]), math.log10(span.domain[1]), 10)
    ticks = between_ticks(tens) if tens.high - tens.low < 2 else _threes(tens)
    ticks = ticks if len(ticks) <= at_most else power_ticks(tens, at_most)
    label = "datum.value < 1000000 ? format(datum.value, ',~r') : replace(format(datum.value, '~s'), 'G', 'B')"
    return _axis(title, ticks, label, overlap="greedy")


def _threes(span: LogRange) -> list[float]:
    powers = range(math.floor(span.low), math.ceil(span.high) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in (1, 3)]
    return [tick for tick in ticks if span.domain[0] <= tick <= span.domain[1]]


def _power_text(batch_size: float) -> str:
    """Return a batch size as a power of two; empty if it is none."""
    size = int(batch_size)
    return "" if size & (size - 1) else f"2{superscript(size.bit_length() - 1)}"


def _axis(
    title: str | None,
    ticks: Sequence[float],
    label: str,
    *,
    grid: bool = True,
    overlap: Literal["greedy"] | Literal[False] = False,
) -> alt.Axis:
    return alt.Axis(
        title=title,
        values=list(ticks),
        labelExpr=label,
        labelFont=POWER_FONT if _DIGITS[0] in label else FONT,
        labelOverlap=overlap,
        labelSeparation=4 if overlap else 0,
        grid=grid,
        tickSize=4,
    )


def power_expression(base: int) -> str:
    """Return the Vega expression that writes a tick as a power, without building functions from text (CSP-safe)."""
    digits = "[" + ",".join(f"'{digit}'" for digit in _DIGITS) + "]"
    exponent = f"round(log(datum.value)/log({base}))"
    size = f"abs({exponent})"
    tens = f"({size}>=10?{digits}[floor({size}/10)]:'')"
    return f"'{base}'+({exponent}<0?'⁻':'')+{tens}+{digits}[{size}%10]"
