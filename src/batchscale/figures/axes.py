"""Logarithmic axes whose ticks are powers, written as powers: 2⁰ 2⁴ 2⁸.

Owns where ticks stand and how they are labelled. Ranges are computed here and not left to the renderer, so that a
chart looks alike in every output and panels can share a range.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import altair as alt

from batchscale.figures.theme import POWER_FONT

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
    """A whole number as raised digits.

    >>> superscript(-12)
    '⁻¹²'
    """
    raised = "".join(_DIGITS[int(digit)] for digit in str(abs(exponent)))
    return ("⁻" if exponent < 0 else "") + raised


def log_range(values: Iterable[float | None], base: int = 2, margin: float = 0.35, least: float = 2.0) -> LogRange:
    """A range that holds all positive values, with a margin, and at least ``least`` powers wide.

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
    """Whole powers inside a range, evenly spaced, not more than ``at_most``.

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
    """The logarithmic scale of a range."""
    return alt.Scale(type="log", base=span.base, domain=span.domain, nice=False)


def log_axis(title: str | None, span: LogRange, at_most: int = 8, *, grid: bool = True) -> alt.Axis:
    """An axis with powers as ticks and labels."""
    return alt.Axis(
        title=title,
        values=power_ticks(span, at_most),
        labelExpr=power_expression(span.base),
        labelFont=POWER_FONT,
        labelOverlap=False,
        grid=grid,
        tickSize=4,
    )


def power_expression(base: int) -> str:
    """The Vega expression that writes a tick as a power; no function is built from text, so any page may run it."""
    digits = "[" + ",".join(f"'{digit}'" for digit in _DIGITS) + "]"
    exponent = f"round(log(datum.value)/log({base}))"
    size = f"abs({exponent})"
    tens = f"({size}>=10?{digits}[floor({size}/10)]:'')"
    return f"'{base}'+({exponent}<0?'⁻':'')+{tens}+{digits}[{size}%10]"
