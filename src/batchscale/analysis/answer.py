"""The answer at a glance: three key figures, at most three sentences of advice, and a short list of doubts.

Terminal, report, web pages and notebooks show the same ``CurveAnswer``, each in its own form.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.regimes import PlateauStatus
from batchscale.analysis.sentences import curve_sentences, doubt_text
from batchscale.analysis.summary import CurveSummary
from batchscale.formatting import percent_text, rounded_text, span_text, whole_text

MOST_ADVICE = 3
TIGHT = 1.5  # an interval that spans less than this factor is given with three digits
CLEAR = 3.0  # an interval that spans more than this factor makes a key figure doubtful


class Trust(StrEnum):
    """The trust in a key figure."""

    SOLID = "well determined"
    DOUBTFUL = "doubtful"
    NONE = "not determined"

    @property
    def mark(self) -> str:
        """A sign for it: a full, a half or an empty circle."""
        return {Trust.SOLID: "●", Trust.DOUBTFUL: "◐", Trust.NONE: "○"}[self]


@dataclass(frozen=True)
class KeyFigure:
    """One of the three numbers that a curve is read for, as text. ``name`` is its key in JSON."""

    name: str
    label: str
    value: str
    interval: str
    trust: Trust


@dataclass(frozen=True)
class CurveAnswer:
    """What a person sees first of a curve.

    Attributes:
        figures: The critical batch size, the end of perfect scaling, the start of the fewest steps; empty where there
            are too few points.
        advice: At most three sentences: the sizes to use, what smaller ones cost, what larger ones save.
        notes: What the points do not determine, then the reasons to trust the answer less, a sentence each.
        basis: What the answer holds for, and where its intervals come from.
    """

    figures: tuple[KeyFigure, ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]
    basis: str


def make_answer(analysis: Analysis) -> CurveAnswer:
    """Return the answer of an analysed curve."""
    summary = analysis.summary
    if summary is None:
        refusal = analysis.refusal or "There are too few points."
        return CurveAnswer((), (refusal,), tuple(doubt_text(doubt) for doubt in analysis.doubts), "")
    sentences = curve_sentences(summary)
    first = (sentences.critical,) if sentences.is_misfit else ()
    is_open = summary.critical.low is None or summary.critical.value is None or summary.critical.high is None
    opened = (sentences.critical,) if is_open and not sentences.is_misfit else ()
    return CurveAnswer(
        figures=key_figures(summary),
        advice=(*first, *sentences.advice)[:MOST_ADVICE],
        notes=tuple(text for text in (*opened, sentences.optimal, *map(doubt_text, sentences.doubts)) if text),
        basis=sentences.basis,
    )


def key_figures(summary: CurveSummary) -> tuple[KeyFigure, ...]:
    """Return the three numbers that a curve is read for, each with its interval and the trust in it."""
    useful = percent_text(summary.regimes.thresholds.useful)
    return (
        KeyFigure("critical_batch_size", "Critical batch size", *_critical(summary)),
        KeyFigure("perfect_scaling_up_to", "Perfect scaling up to", *_perfect(summary)),
        KeyFigure("fewest_steps_from", f"Fewest steps (within {useful}) from", *_fewest(summary)),
    )


def critical_digits(low: float | None, high: float | None) -> int:
    """Return the digits that a critical batch size with this interval is given with."""
    return 3 if low is not None and high is not None and high < TIGHT * low else 2


def _critical(summary: CurveSummary) -> tuple[str, str, Trust]:
    critical = summary.critical
    digits = critical_digits(critical.low, critical.high)

    def text(value: float) -> str:
        return rounded_text(value, digits)

    if critical.value is None:
        return (summary.unit.bounds(critical.low, critical.high, text) or "–", "", Trust.NONE)
    return summary.unit.size(critical.value, text), _interval(summary, critical, text), _trust(summary, critical)


def _perfect(summary: CurveSummary) -> tuple[str, str, Trust]:
    regimes = summary.regimes
    end, unit = regimes.perfect_scaling_end, summary.unit
    span = _interval(summary, end)
    if regimes.is_end_open or regimes.is_too_short:
        return (span and unit.bounds(end.low, end.high)) or "–", "", Trust.NONE
    trust = _trust(summary, end)
    if regimes.perfect_scaling_start == summary.largest:
        return "–", "none measured", trust
    if regimes.perfect_end == summary.largest:
        return f"≥ {unit.size(summary.largest)}", "the largest measured", trust
    return unit.size(regimes.perfect_end), span, trust


def _fewest(summary: CurveSummary) -> tuple[str, str, Trust]:
    regimes = summary.regimes
    if regimes.plateau is PlateauStatus.FALLING:
        return f"> {summary.unit.size(summary.largest)}", "steps still fall", Trust.NONE
    value = summary.unit.size(regimes.useful.value or summary.largest)
    if regimes.plateau is PlateauStatus.OPEN:
        return value, "steps may still fall", Trust.NONE
    return value, _interval(summary, regimes.useful), _trust(summary, regimes.useful)


def _interval(summary: CurveSummary, estimate: Estimate, text: Callable[[float], str] = whole_text) -> str:
    """Return the text of an interval; empty if both ends are the value."""
    value = "" if estimate.value is None else text(estimate.value)
    is_same = span_text(estimate.low, estimate.high, text) == f"{value} to {value}"
    return "" if is_same else span_text(estimate.low, estimate.high, lambda end: summary.unit.short(end, text))


def _trust(summary: CurveSummary, estimate: Estimate) -> Trust:
    """Return the trust in a figure: doubtful with a wide interval, without a law, or beside a doubtful point."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if summary.misfit is not None or value is None or low is None or high is None or high > CLEAR * low:
        return Trust.DOUBTFUL
    sizes = [point.batch_size for point in summary.points]
    below = max((size for size in sizes if size <= value), default=sizes[0])
    above = min((size for size in sizes if size >= value), default=sizes[-1])
    return Trust.DOUBTFUL if {below, above} & set(summary.doubted) else Trust.SOLID
