"""The sentences about a curve, each a pure function of its ``CurveSummary``: the verdict first, in plain words.

Tables, the end of a run, the report and every command print these. A sentence states what was measured in the past
tense. What only the fitted curves give is named as such, and nothing is stated beyond the measured sizes.
``benchmarks/answer_claims.py`` parses every sentence and checks each number in it against the points.
"""

import math
import re
from dataclasses import dataclass

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.families import Family
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.measured import (
    allowed_fall,
    cheap_from,
    examples_ratio,
    fall_per_doubling,
    final_rise,
    last_change,
    may_be_noise,
    steps_by_size,
    worst_bump,
)
from batchscale.analysis.noise import ASSUMED, NoiseSource
from batchscale.analysis.regimes import PlateauStatus
from batchscale.analysis.summary import CurveSummary
from batchscale.formatting import count_text, percent_text, rounded_text, times_text, whole_text

CLEAR_DRIFT = 1.15  # critical batch sizes at fewer trials that differ by less are not mentioned
CLEAR_RISE = 1.05  # steps at the largest size over the fewest, from which on a rise is given as a number
_BRACKETS = re.compile(  # an interval in a text, in examples or in tokens
    r"\((?:at (?:least|most) )?\d[\d.,]*(?: to |\)| M| billion)(?![^()]*sequences?\))|\([^()]*; [\d.,]+ sequences?\)"
)
WIDE = 1.5  # a value whose interval spans more than this factor is given with two digits


@dataclass(frozen=True)
class Sentences:
    """The sentences about one curve.

    Attributes:
        advice: At most three: the sizes to use, what smaller ones cost, what larger ones save.
        critical: The critical batch size, or the reason why there is none.
        optimal: The batch size of fewest examples, if it lies between the measured sizes; otherwise empty.
        doubts: The reasons to trust the result less, each a part of a sentence.
        basis: What the result holds for, and where its intervals come from.
        is_misfit: True if no law describes the points. Then ``critical`` says so and comes first.
    """

    advice: tuple[str, ...]
    critical: str
    optimal: str
    doubts: tuple[str, ...]
    basis: str
    is_misfit: bool = False

    @property
    def ordered(self) -> tuple[str, ...]:
        """The sentences in reading order: the verdict, then the reasons to trust it less."""
        verdict = (self.critical, *self.advice) if self.is_misfit else (*self.advice, self.critical)
        doubts = (f"Doubt: {doubt}." for doubt in self.doubts)
        return tuple(text for text in (*verdict, self.optimal, *doubts, self.basis) if text)


def curve_sentences(summary: CurveSummary) -> Sentences:
    """Return all sentences about a curve."""
    advice = (cost_sentence(summary), small_sizes_sentence(summary), steps_sentence(summary))
    critical, optimal = critical_sentence(summary), optimal_sentence(summary)
    return Sentences(
        advice=tuple(text for text in advice if text),
        critical=critical,
        optimal=optimal,
        doubts=(*summary.doubts, *_bump_doubts(summary)),
        basis=basis_sentence(summary, has_brackets=any(map(_BRACKETS.search, (*advice, critical, optimal)))),
        is_misfit=summary.misfit is not None,
    )


def answer_sentences(answer: Analysis) -> tuple[str, ...]:
    """Return the sentences about an analysed curve in reading order, also if there are too few points."""
    if answer.summary is None:
        return (answer.refusal or "There are too few points.", *(f"Doubt: {doubt}." for doubt in answer.doubts))
    return curve_sentences(answer.summary).ordered


def cost_sentence(summary: CurveSummary) -> str:
    """State the sizes to use at little extra cost, and the examples that the largest size needed.

    Empty if the largest size is the only cheap one: the sentence on small sizes says it then.
    """
    regimes, unit = summary.regimes, summary.unit
    reference, end = regimes.perfect_scaling_start, regimes.perfect_end
    low = regimes.cheap_from
    role = f"the {'cheapest' if reference == regimes.cheapest else 'smallest'} size"
    if regimes.is_too_short:
        return f"Batch sizes {unit.span(low, end)} lie too close together to tell how steps scale between them."
    largest = summary.largest
    at_largest = times_text(examples_ratio(summary, largest, reference))
    if regimes.is_end_open:
        tolerance = percent_text(regimes.thresholds.perfect)
        ends = regimes.perfect_scaling_end.low or summary.smallest, regimes.perfect_scaling_end.high or largest
        return (
            f"Perfect scaling (twice the batch, half the steps, within {tolerance}) ends somewhere between batch size "
            f"{unit.span(*ends, word='and')}; the noise is too large to say where. As measured, "
            f"{unit.size(largest)} needed {at_largest} times the {unit.noun} of {unit.size(reference)}, {role}."
        )
    if low == end:
        if end == largest:
            return ""
        following = next(size for size in steps_by_size(summary) if size > end)
        ratio = times_text(examples_ratio(summary, following, reference))
        text = f"Already {unit.size(following)} needed {ratio} times the {unit.noun} of {unit.size(reference)}, {role}"
        return f"{text}." if following == largest else f"{text}, and {unit.size(largest)} {at_largest} times."
    cheap = [size for size in steps_by_size(summary) if low <= size <= end]
    extra = max(examples_ratio(summary, size, reference) for size in cheap) - 1
    last = unit.estimate(end, regimes.perfect_scaling_end.low, regimes.perfect_scaling_end.high)
    sizes = f"up to batch size {last}" if low == summary.smallest else f"batch sizes {unit.size(low)} to {last}"
    failed = [size for size in summary.failed if size < end and (size > low or low == summary.smallest)]
    text = f"Use {sizes}"
    text += f", except {unit.sizes(failed)}, where the goal was not reached," if failed else ""
    if extra > 1e-9:
        text += f" at little extra cost: at most {_percent_above(extra)} more {unit.noun} than "
        text += f"{unit.size(reference)}, {role}"
    else:
        text += f" at no extra cost over {unit.size(reference)}, {role}"
    return f"{text}." if end == largest else f"{text}; {unit.size(largest)} needed {at_largest} times as many."


def small_sizes_sentence(summary: CurveSummary) -> str:
    """State what sizes below the cheap ones cost; empty if there are none."""
    cheapest, unit = summary.regimes.cheapest, summary.unit
    low = cheap_from(summary, cheapest)
    ratios = {size: examples_ratio(summary, size, cheapest) for size in steps_by_size(summary) if size < low}
    if not ratios:
        return ""
    worst = max(ratios, key=lambda size: ratios[size])
    if cheapest == summary.largest:
        return (
            f"The largest size, {unit.size(cheapest)}, needed the fewest {unit.noun}; {unit.size(worst)} needed "
            f"{times_text(ratios[worst])} times as many: the small sizes were probably tuned less well."
        )
    return (
        f"Batch sizes below {unit.size(low)} cost more: {unit.size(worst)} needed {times_text(ratios[worst])} times "
        f"the {unit.noun} of {unit.size(cheapest)}. Something was probably not tuned there, for example the learning "
        "rate or Adam's β2."
    )


def steps_sentence(summary: CurveSummary) -> str:
    """State how many steps a larger batch saves, or that steps rise."""
    regimes, steps, rise, unit = summary.regimes, steps_by_size(summary), final_rise(summary), summary.unit
    useful = int(regimes.useful.value or summary.largest)
    saved = 1 - min(value for size, value in steps.items() if size >= useful) / steps[useful]
    plateau = ""
    if regimes.max_useful_reached and useful < summary.largest:
        size = unit.estimate(useful, regimes.useful.low, regimes.useful.high)
        plateau = f"Above {size} a larger batch saves at most {_percent_above(saved)} of the steps"
        if saved <= 0:
            plateau = f"Above {size} no larger batch saved steps"
    if rise is not None and rise.ratio >= CLEAR_RISE:
        text = f"bove {unit.size(rise.smaller)} steps rise: {unit.size(rise.larger)} needed "
        text += f"{times_text(rise.ratio)} times as many"
        text = f"{plateau}; a{text}" if plateau and saved > 0 else f"A{text}"
        if may_be_noise(summary, rise):
            return f"{text}, which may be noise."
        return f"{text}. Do not go there." if rise.ratio > 1 + regimes.thresholds.useful else f"{text}."
    if plateau:
        return f"{plateau} (measured up to {unit.short(summary.largest)})."
    if rise is not None:
        measured = f"measured up to {unit.short(summary.largest)}"
        return f"Above {unit.size(rise.smaller)} no larger batch saved steps ({measured})."
    return _last_change_text(summary)


def critical_sentence(summary: CurveSummary) -> str:
    """State the critical batch size, where the curve bends from saving steps to wasting examples."""
    critical, unit, name = summary.critical, summary.unit, "Critical batch size, where the curve bends:"
    if summary.misfit is not None:
        return summary.misfit.reason
    if summary.confidence_set is None:
        return "Two points give no critical batch size; measure more batch sizes."
    if summary.fit is not None and summary.fit.best.family is Family.POWER:
        saved = percent_text(fall_per_doubling(summary))
        return (
            f"At all sizes measured twice the batch saves about {saved} of the steps, without a bend: these points "
            "have no critical batch size."
        )
    if not critical.has_interval:
        return f"These points do not bound the critical batch size{_next_measurement(summary, True, True)}."
    wanted = _next_measurement(summary, smaller=critical.low is None, larger=critical.high is None)

    def digits(end: float) -> str:
        return _digits(end, critical)

    bounds = unit.bounds(critical.low, critical.high, digits)
    if critical.value is None:
        return f"{name} {bounds}{wanted}."
    if critical.low is None or critical.high is None:
        return f"{name} about {unit.size(critical.value, digits)}, {bounds}{wanted}."
    return f"{name} about {unit.estimate(critical.value, critical.low, critical.high, digits, always=True)}."


def optimal_sentence(summary: CurveSummary) -> str:
    """State the batch size of fewest examples by the fitted curve, and the sizes that cost little more."""
    optimal, size, unit = summary.optimal, summary.optimal.batch_size, summary.unit
    if size.value is None or summary.misfit is not None:
        return ""

    def digits(end: float) -> str:
        return _digits(end, size)

    def band_digits(end: float) -> str:
        return whole_text(end) if end in (summary.smallest, summary.largest) else digits(end)

    low, high = max(optimal.band[0], summary.smallest), min(optimal.band[1], summary.largest)
    extra = percent_text(summary.regimes.thresholds.band)
    return (
        f"Fewest {unit.noun} by the fitted curve: at batch size "
        f"{unit.estimate(size.value, size.low, size.high, digits)}; from {unit.span(low, high, band_digits)} "
        f"it needs at most {extra} more."
    )


def basis_sentence(summary: CurveSummary, *, has_brackets: bool = True) -> str:
    """State what the result holds for, and the source of its intervals if there are any."""
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
            NoiseSource.RESIDUALS: f"In brackets: {level} intervals, from how far the points lie off the fitted curve.",
            NoiseSource.ASSUMED: (
                f"In brackets: {level} intervals for an assumed noise of {percent_text(ASSUMED)}, as three points give "
                "no estimate of it."
            ),
            None: "",
        }[summary.noise if has_brackets else None]
    )
    return " ".join(text for text in parts if text)


def doubt_text(doubt: str) -> str:
    """Return a reason to trust the result less as a sentence of a list."""
    return f"{doubt[:1].upper()}{doubt[1:]}."


def _bump_doubts(summary: CurveSummary) -> tuple[str, ...]:
    bump = worst_bump(summary)
    if bump is None:
        return ()
    unit = summary.unit
    times = f"{times_text(bump.ratio)} times the steps of {unit.size(bump.smaller)}"
    return (f"batch size {unit.size(bump.larger)} needed {times}: by chance, or it was tuned less well",)


def _last_change_text(summary: CurveSummary) -> str:
    """State the change of steps up to the largest size as measured, the fall that laws allow, and what to measure."""
    change, largest, unit = last_change(summary), summary.largest, summary.unit
    fall = 1 - change.ratio
    moved = f"{'fell' if fall > 0 else 'rose'} by {percent_text(abs(fall))}" if round(100 * fall) else "did not change"
    text = f"From {unit.size(change.smaller)} to {unit.size(largest)}, the largest size measured, steps {moved}"
    allowed = allowed_fall(summary, change)
    if allowed.has_interval and summary.misfit is None:
        ends = [percent_text(allowed.low), percent_text(allowed.high)]
        text += f"; fitted curves allow a fall of {' to '.join(dict.fromkeys(ends))}"
    if summary.confidence_set is None:
        return f"{text}. Two sizes do not show where steps stop falling: measure more batch sizes."
    if any(point.is_coarse for point in summary.points if point.batch_size >= (summary.regimes.useful.value or 0)):
        return f"{text}. Evaluate more often to see if steps still fall."
    failed = [size for size in summary.failed if size > largest]
    if failed and failed[0] <= 2 * largest:
        return f"{text}. The goal was not reached at {unit.sizes(failed)}."
    if summary.regimes.plateau is PlateauStatus.FALLING:
        return f"{text}. Larger sizes may be faster still: measure {unit.size(2 * largest)}."
    return f"{text}. Measure {unit.size(2 * largest)} to see if steps fall further."


def _next_measurement(summary: CurveSummary, smaller: bool, larger: bool) -> str:
    """Return which sizes to measure to bound the critical batch size; not those that failed already."""
    smaller = smaller and summary.smallest > 1 and not any(size < summary.smallest for size in summary.failed)
    larger = larger and not any(size > summary.largest for size in summary.failed)
    wanted = [text for text, is_wanted in (("smaller", smaller), ("larger", larger)) if is_wanted]
    return f"; measure {' and '.join(wanted)} batch sizes to bound it" if wanted else ""


def _drift(summary: CurveSummary) -> str:
    values = [value for _, value in summary.drift]
    steady = values in (sorted(values), sorted(values, reverse=True))
    if len(values) < 2 or not steady or max(values) / min(values) < CLEAR_DRIFT:
        return ""
    trend = ", ".join(f"{summary.unit.brief(value, rounded_text)} at {trials:,}" for trials, value in summary.drift)
    moves = "grows" if values[-1] > values[0] else "shrinks"
    return f"The critical batch size {moves} with the number of trials ({trend}); more trials may move it further."


def _digits(value: float | None, estimate: Estimate) -> str:
    """Format a value or an end of an estimate: three digits, two if its interval is wide or has an open end."""
    is_wide = not estimate.low or not estimate.high or estimate.high / estimate.low > WIDE
    return rounded_text(value, digits=2 if is_wide else 3)


def _percent_above(share: float) -> str:
    """Format a share in whole percent, rounded up, for "at most"."""
    return f"{math.ceil(100 * share - 1e-6)} %"
