"""The sentences about a curve, each a pure function of its ``CurveSummary``.

Tables, the end of a run, the report and every command print these. Each number has its interval.
"""

from collections.abc import Callable
from dataclasses import dataclass

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.noise import ASSUMED, NoiseSource
from batchscale.analysis.regimes import PlateauStatus, Regimes
from batchscale.analysis.summary import CurveSummary
from batchscale.formatting import count_text, percent_text, rounded_text, span_text, whole_text

CLEAR_DRIFT = 1.15  # critical batch sizes at fewer trials that differ by less are not mentioned


@dataclass(frozen=True)
class Sentences:
    """The sentences about one curve. ``doubts`` is empty if there is no reason to trust it less."""

    doubts: str
    examples: str
    useful: str
    critical: str
    basis: str

    @property
    def ordered(self) -> tuple[str, ...]:
        """The sentences in reading order: reasons to trust the result less come first."""
        rest = (self.examples, self.useful, self.critical, self.basis)
        return tuple(text for text in (self.doubts, *rest) if text)


def curve_sentences(summary: CurveSummary) -> Sentences:
    """Return all sentences about a curve."""
    return Sentences(
        doubts=doubt_sentence(summary.doubts),
        examples=examples_sentence(summary),
        useful=useful_sentence(summary),
        critical=critical_sentence(summary),
        basis=basis_sentence(summary),
    )


def answer_sentences(answer: Analysis) -> tuple[str, ...]:
    """Return the sentences about an analysed curve in reading order, also if there are too few points."""
    if answer.summary is None:
        refusal = answer.refusal or "There are too few points."
        return tuple(text for text in (doubt_sentence(answer.doubts), refusal) if text)
    return curve_sentences(answer.summary).ordered


def examples_sentence(summary: CurveSummary) -> str:
    """State how far steps fall in proportion, and the examples that the largest size costs."""
    regimes = summary.regimes
    cheapest, end, largest = regimes.cheapest, regimes.perfect_end, regimes.largest
    if regimes.perfect_scaling_start != cheapest:
        return _first_baseline_sentence(summary)
    if cheapest == largest:
        return (
            f"The fewest examples were needed at the largest batch size measured, {largest:,}: no size measured costs "
            "extra computation."
        )
    tolerance = percent_text(regimes.thresholds.perfect)
    at_largest = f", at the largest size, {largest:,}, {_ratio(summary, largest)} times."
    if end == cheapest:
        following = _next_size(summary, cheapest)
        text = (
            f"The fewest examples were needed at batch size {cheapest:,}: at {following:,} it takes "
            f"{_ratio(summary, following)} times the examples of the best size"
        )
        text += "." if following == largest else at_largest
        further = regimes.perfect_scaling_end.high or 0.0
        if further > end:
            text += (
                f" That steps fall in proportion, to within {tolerance}, up to {whole_text(further)} is not ruled out."
            )
        return text
    text = _proportion(regimes) + ("" if regimes.is_too_short else f", to within {tolerance}")
    text += f": at {end:,} it takes {_ratio(summary, end)} times the examples of the best size, {cheapest:,}"
    return text + ("." if end == largest else at_largest)


def _first_baseline_sentence(summary: CurveSummary) -> str:
    """State the same against the line through the smallest size, where another size needs the fewest examples."""
    regimes = summary.regimes
    start, cheapest, largest = regimes.perfect_scaling_start, regimes.cheapest, regimes.largest
    line = f", to within {percent_text(regimes.thresholds.perfect)} of the line through the smallest size"
    if regimes.perfect_end == start:
        text = f"From batch size {start:,} to {_next_size(summary, start):,} steps do not fall in proportion{line}"
    else:
        text = _proportion(regimes) + ("" if regimes.is_too_short else line)
    text += f": at {start:,} it takes {_ratio(summary, start)} times the examples of the best size, {cheapest:,}"
    if cheapest == largest:
        return text + "."
    return f"{text}, at the largest size, {largest:,}, {_ratio(summary, largest)} times."


def _proportion(regimes: Regimes) -> str:
    start, end = regimes.perfect_scaling_start, regimes.perfect_end
    if regimes.is_too_short:
        return f"Batch sizes {start:,} to {end:,} lie too close together to tell whether steps fall in proportion"
    interval = _span(regimes.perfect_scaling_end, whole_text)
    return f"From batch size {start:,} to {end:,}{interval} steps fall in proportion"


def _next_size(summary: CurveSummary, batch_size: int) -> int:
    return next(point.batch_size for point in summary.points if point.batch_size > batch_size)


def useful_sentence(summary: CurveSummary) -> str:
    """State whether a batch beyond some size still saves steps."""
    regimes = summary.regimes
    useful, gain = regimes.useful, f"{percent_text(regimes.last_doubling_gain.value or regimes.measured_gain)}"
    gain += _span(regimes.last_doubling_gain, percent_text)
    share, size = percent_text(regimes.thresholds.useful), whole_text(useful.value)
    if regimes.plateau is PlateauStatus.REACHED:
        return (
            f"At batch size {size}{_span(useful, whole_text)} steps are within {share} of the fewest measured at any "
            "size: more data parallelism saves no more than that."
        )
    if regimes.plateau is PlateauStatus.FALLING:
        return (
            f"Steps still fell at the largest batch size measured, {summary.largest:,}: by {gain} in the last "
            "doubling. Larger sizes may train faster still; measure them before you decide against more hardware."
        )
    if not regimes.last_doubling_gain.has_interval:
        first, last = summary.points[0].steps.value, summary.points[-1].steps.value
        return (
            f"Two points do not show where steps stop falling: from {summary.smallest:,} to {summary.largest:,} they "
            f"went from {whole_text(first)} to {whole_text(last)}. Measure more batch sizes."
        )
    fastest = "" if summary.fastest == summary.largest else f", but the fewest were measured at {summary.fastest:,}"
    return (
        f"Whether sizes beyond {summary.largest:,} would train faster is not decided: in the last doubling steps fell "
        f"by {gain}{fastest}. The smallest size within {share} of the fewest steps measured is {size}"
        f"{_span(useful, whole_text)}."
    )


def critical_sentence(summary: CurveSummary) -> str:
    """State the critical batch size, where the curve bends from saving steps to wasting examples."""
    critical = summary.critical
    if critical.value is None and not critical.has_interval:
        if summary.confidence_set is None:
            return "Two points give no critical batch size; measure more batch sizes."
        return "These points do not bound the critical batch size: measure smaller and larger batch sizes."
    if critical.value is None:
        where = "larger" if critical.low is not None else "smaller"
        return (
            f"The critical batch size, where the curve bends, is {span_text(critical.low, critical.high)}, outside "
            f"the measured range: measure {where} batch sizes."
        )
    text = f"The critical batch size, where the curve bends, is about {rounded_text(critical.value)}{_span(critical)}"
    if not critical.has_interval:
        return f"{text}, but these points bound it on neither side: measure smaller and larger batch sizes."
    if critical.high is None:
        return f"{text}; these points do not bound it from above: measure larger batch sizes."
    if critical.low is None:
        return f"{text}; these points do not bound it from below: measure smaller batch sizes."
    return f"{text}."


def basis_sentence(summary: CurveSummary) -> str:
    """State what the result holds for, and the source of its intervals."""
    parts, level = [], percent_text(summary.level)
    if summary.trials is not None:
        low, high = summary.trials
        count = ("" if low == high else f"{low:,} to ") + count_text(high, "trial")
        parts.append(f"This result holds for this protocol at {count} a batch size, not for perfect tuning.")
    drift = _drift(summary)
    if drift:
        parts.append(drift)
    parts.append(
        {
            NoiseSource.TRIALS: f"In brackets: {level} intervals, from the spread of the trials.",
            NoiseSource.RUNS: f"In brackets: {level} intervals, from the spread of the repeated runs.",
            NoiseSource.SEEDS: f"In brackets: {level} intervals, from the spread over new seeds of the best trials.",
            NoiseSource.RESIDUALS: f"In brackets: {level} intervals, from how far the points lie off the best law.",
            NoiseSource.ASSUMED: (
                f"In brackets: {level} intervals for an assumed noise of {percent_text(ASSUMED)}, as three points give "
                "no estimate of it."
            ),
            None: "",
        }[summary.noise]
    )
    return " ".join(text for text in parts if text)


def doubt_sentence(doubts: tuple[str, ...]) -> str:
    """State the reasons to trust the result less; empty if there are none."""
    return f"Read this with care: {'; '.join(doubts)}." if doubts else ""


def _drift(summary: CurveSummary) -> str:
    values = [value for _, value in summary.drift]
    steady = values in (sorted(values), sorted(values, reverse=True))
    if len(values) < 2 or not steady or max(values) / min(values) < CLEAR_DRIFT:
        return ""
    trend = ", ".join(f"{rounded_text(value)} at {trials:,}" for trials, value in summary.drift)
    moves = "grows" if values[-1] > values[0] else "shrinks"
    return f"The critical batch size {moves} with the number of trials ({trend}); more trials may move it further."


def _ratio(summary: CurveSummary, batch_size: int) -> str:
    ratio = summary.point(batch_size).examples_ratio
    return times_text(ratio.value) + _span(ratio, times_text)


def times_text(value: float | None) -> str:
    """Return a factor with two decimals below ten, else with three digits.

    >>> times_text(1.549), times_text(30.72), times_text(1234.5)
    ('1.55', '30.7', '1,230')
    """
    return f"{value:.2f}" if value is not None and value < 10 else rounded_text(value)


def _span(estimate: Estimate, text: Callable[[float], str] = rounded_text) -> str:
    span = span_text(estimate.low, estimate.high, text)
    same = estimate.low is not None and estimate.high is not None and text(estimate.low) == text(estimate.high)
    return f" ({span})" if span and not same else ""
