"""The sentences that a practitioner acts on: each a pure function of the one set of facts, and worded only here.

Tables, the end of a run, the report and every command say these words. Since all of them come from ``CurveFacts``, no
two can contradict each other, and each number stands with its interval.
"""

from collections.abc import Callable
from dataclasses import dataclass

from batchscale.analysis.answers import Analysis
from batchscale.analysis.estimates import Estimate
from batchscale.analysis.facts import CurveFacts, FallEnding
from batchscale.analysis.noise import ASSUMED, NoiseSource
from batchscale.analysis.wording import times_text
from batchscale.formatting import percent_text, rounded_text, span_text, whole_text

CLEAR_DRIFT = 1.15  # critical batch sizes at fewer trials that differ by less are not worth a word


@dataclass(frozen=True)
class Sentences:
    """What is said about one curve. ``doubts`` is empty where there is no reason to trust it less."""

    doubts: str
    examples: str
    useful: str
    critical: str
    basis: str

    @property
    def ordered(self) -> tuple[str, ...]:
        """As they should be read: reasons to trust the answer less come before it."""
        rest = (self.examples, self.useful, self.critical, self.basis)
        return tuple(text for text in (self.doubts, *rest) if text)


def curve_sentences(facts: CurveFacts) -> Sentences:
    """All sentences about a curve."""
    return Sentences(
        doubts=doubt_sentence(facts.doubts),
        examples=examples_sentence(facts),
        useful=useful_sentence(facts),
        critical=critical_sentence(facts),
        basis=basis_sentence(facts),
    )


def answer_sentences(answer: Analysis) -> tuple[str, ...]:
    """What to say about an analysed curve, in the order to read it; also where there are too few points."""
    if answer.facts is None:
        refusal = answer.refusal or "There are too few points."
        return tuple(text for text in (doubt_sentence(answer.doubts), refusal) if text)
    return curve_sentences(answer.facts).ordered


def examples_sentence(facts: CurveFacts) -> str:
    """What a larger batch costs in examples: how far steps fall in proportion, and the price at the largest size."""
    cheapest, end, largest = facts.cheapest, facts.proportional_end, facts.largest
    if cheapest == largest:
        return (
            f"The fewest examples were needed at the largest batch size measured, {largest:,}: no size measured costs "
            "extra computation."
        )
    tolerance = percent_text(facts.thresholds.perfect)
    if end == cheapest:
        following = next(point.batch_size for point in facts.points if point.batch_size > cheapest)
        said = (
            f"The fewest examples were needed at batch size {cheapest:,}: at {following:,} it takes "
            f"{_ratio(facts, following)} times the examples of the best size"
        )
        said += "." if following == largest else f", at the largest size, {largest:,}, {_ratio(facts, largest)} times."
        further = facts.proportional.high or 0.0
        if further > end:
            said += (
                f" That steps fall in proportion, to within {tolerance}, up to {whole_text(further)} is not ruled out."
            )
        return said
    if end / cheapest <= 1 + facts.thresholds.perfect:
        # Even steps that do not fall at all would stay within the tolerance over so short a way.
        said = f"Batch sizes {cheapest:,} to {end:,} lie too close together to tell whether steps fall in proportion"
    else:
        reach = f"{end:,}{_span(facts.proportional, whole_text)}"
        said = f"From batch size {cheapest:,} to {reach} steps fall in proportion, to within {tolerance}"
    said += f": at {end:,} it takes {_ratio(facts, end)} times the examples of the best size, {cheapest:,}"
    return said + ("." if end == largest else f", at the largest size, {largest:,}, {_ratio(facts, largest)} times.")


def useful_sentence(facts: CurveFacts) -> str:
    """Whether a batch beyond some size still saves steps."""
    fall, useful = facts.fall, facts.useful
    share, size = percent_text(facts.thresholds.useful), whole_text(useful.value)
    if facts.ending is FallEnding.REACHED:
        return (
            f"At batch size {size}{_span(useful, whole_text)} steps are within {share} of the fewest measured at any "
            "size: more data parallelism saves no more than that."
        )
    if facts.ending is FallEnding.FALLING:
        return (
            f"Steps still fell at the largest batch size measured, {facts.largest:,}: by {_fall(facts)} in the last "
            "doubling. Larger sizes may train faster still; measure them before you decide against more hardware."
        )
    if not fall.has_interval:
        return (
            f"Two points do not tell where steps stop to fall: from {facts.smallest:,} to {facts.largest:,} they went "
            f"from {whole_text(facts.points[0].steps.value)} to {whole_text(facts.points[-1].steps.value)}. "
            "Measure more batch sizes."
        )
    return (
        f"Whether sizes beyond {facts.largest:,} would train faster is not decided: in the last doubling steps fell by "
        f"{_fall(facts)}{_faster(facts)}. The smallest size within {share} of the fewest steps measured is {size}"
        f"{_span(useful, whole_text)}."
    )


def critical_sentence(facts: CurveFacts) -> str:
    """The critical batch size, where the curve bends from saving steps to wasting examples."""
    critical = facts.critical
    if critical.value is None and not critical.has_interval:
        if facts.region is None:
            return "Two points give no critical batch size; measure more batch sizes."
        return "These points do not bound the critical batch size: measure smaller and larger batch sizes."
    if critical.value is None:
        where = "larger" if critical.low is not None else "smaller"
        return (
            f"The critical batch size, where the curve bends, is {span_text(critical.low, critical.high)}, and not in "
            f"sight: measure {where} batch sizes."
        )
    text = f"The critical batch size, where the curve bends, is about {rounded_text(critical.value)}{_span(critical)}"
    if not critical.has_interval:
        return f"{text}, but these points bound it on neither side: measure smaller and larger batch sizes."
    if critical.high is None:
        return f"{text}; how large it may be, these points cannot tell: measure larger batch sizes."
    if critical.low is None:
        return f"{text}; how small it may be, these points cannot tell: measure smaller batch sizes."
    return f"{text}."


def basis_sentence(facts: CurveFacts) -> str:
    """What the answer is an answer for, and what its intervals rest on."""
    said, level = [], percent_text(facts.level)
    if facts.trials is not None:
        low, high = facts.trials
        count = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        said.append(f"This is the answer for this protocol at {count} trials a batch size, not for perfect tuning.")
    drift = _drift(facts)
    if drift:
        said.append(drift)
    said.append(
        {
            NoiseSource.TRIALS: f"In brackets: {level} intervals, from the spread of the trials.",
            NoiseSource.RUNS: f"In brackets: {level} intervals, from the spread of the repeated runs.",
            NoiseSource.RESIDUALS: f"In brackets: {level} intervals, from how far the points lie off the best law.",
            NoiseSource.ASSUMED: (
                f"In brackets: {level} intervals for an assumed noise of {percent_text(ASSUMED)}, as three points say "
                "nothing about their own."
            ),
            None: "",
        }[facts.noise]
    )
    return " ".join(text for text in said if text)


def doubt_sentence(doubts: tuple[str, ...]) -> str:
    """Reasons to trust the answer less; empty if there are none."""
    return f"Read this with care: {'; '.join(doubts)}." if doubts else ""


def _drift(facts: CurveFacts) -> str:
    values = [value for _, value in facts.drift]
    steady = values in (sorted(values), sorted(values, reverse=True))
    if len(values) < 2 or not steady or max(values) / min(values) < CLEAR_DRIFT:
        return ""
    shown = ", ".join(f"{rounded_text(value)} at {trials:,}" for trials, value in facts.drift)
    moves = "grows" if values[-1] > values[0] else "shrinks"
    return f"The critical batch size {moves} with the number of trials ({shown}); more trials may move it further."


def _ratio(facts: CurveFacts, batch_size: int) -> str:
    ratio = facts.point(batch_size).examples_ratio
    return times_text(ratio.value) + _span(ratio, times_text)


def _fall(facts: CurveFacts) -> str:
    return percent_text(facts.fall.value) + _span(facts.fall, percent_text)


def _faster(facts: CurveFacts) -> str:
    return "" if facts.fastest == facts.largest else f", but the fewest were measured at {facts.fastest:,}"


def _span(estimate: Estimate, text: Callable[[float], str] = rounded_text) -> str:
    shown = span_text(estimate.low, estimate.high, text)
    same = estimate.low is not None and estimate.high is not None and text(estimate.low) == text(estimate.high)
    return f" ({shown})" if shown and not same else ""
