"""The values to launch a planned training with: batch size, learning rate, β2, weight decay and a batch-size schedule.

Owns which value rests on what: a measurement, a fitted law, or a published rule. Files for trainers are in
``launch_files``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchscale.analysis.laws import LawCurve, Laws
from batchscale.atlas.published_laws import find_published
from batchscale.errors import PlanningError
from batchscale.formatting import rounded_text, span_text

HALF_LIFE = 2**19 * math.log(0.5) / math.log(0.95)  # tokens: of β2 = 0.95 at batches of 2^19 tokens, as GPT-3 and later
HALF_LIVES = (HALF_LIFE, 2**19 * math.log(0.5) / math.log(0.98))  # and of 0.98: the values in common use
LEAST_BETA2 = 0.95  # the rule is for smaller batches; larger ones are trained with this
TIME_SCALE = (1.084, -0.527)  # τ = 1.084 (D/N)^-0.527, Bergsma et al. 2025
EXPONENTS = (0.383, 0.571)  # published, of B_opt against tokens: to carry a measurement to other budgets
SWITCH_AT = 0.8  # the share of tokens after which a late switch is made
LATE_FACTOR = 4
HALVINGS = 3  # of the batch size at the start of a warm-up


class Basis(StrEnum):
    """The ground of a value."""

    MEASURED = "measured"
    LAW = "law"
    PUBLISHED = "published rule"
    GIVEN = "given"


class ScheduleKind(StrEnum):
    """A kind of batch-size schedule."""

    CONSTANT = "constant"
    WARMUP = "warmup"
    LATE = "late"
    STEPS = "steps"


THEORIES: Mapping[ScheduleKind, str] = {
    ScheduleKind.CONSTANT: (
        "One batch size throughout. Laws of B_opt are measured this way. A report of Qwen (2026) finds a warm-up "
        "unnecessary; Merrill et al. and Wang et al. contradict it."
    ),
    ScheduleKind.WARMUP: (
        "Start small and double as soon as the critical batch size allows it. Merrill et al. 2025 (arXiv 2505.23971): "
        "the critical batch size is near 0 at the start, rises and levels off; OLMo 1B took 43 % fewer steps. "
        "Contradicts late switching, which keeps batches small for longest."
    ),
    ScheduleKind.LATE: (
        "Keep the batch small and switch late. Wang et al. 2026 (arXiv 2602.14208): for hard tasks, after the switch "
        "the loss soon joins that of large batches, so most tokens are better spent in small ones; up to 1.1 B "
        "parameters. Contradicts warm-up, which is at full size early."
    ),
    ScheduleKind.STEPS: "Your own stages.",
}


@dataclass(frozen=True)
class BatchStage:
    """A batch size, in sequences, from a number of tokens on."""

    start: int
    batch_size: int


@dataclass(frozen=True)
class Suggested:
    """A value, its 90 % interval where one is known, and what it rests on."""

    name: str
    value: float
    low: float | None
    high: float | None
    basis: Basis
    reason: str


@dataclass(frozen=True)
class LaunchRequest:
    """The planned training. ``batch_tokens`` and ``stages`` (tokens, batch in tokens) are None unless a user sets them.

    Batch sizes are whole multiples of ``multiple_of`` sequences.
    """

    tokens: float
    parameters: float
    sequence: int = 2048
    batch_tokens: float | None = None
    schedule: ScheduleKind = ScheduleKind.CONSTANT
    stages: tuple[tuple[float, float], ...] = ()
    multiple_of: int = 8


@dataclass(frozen=True)
class LaunchPlan:
    """The suggested values of a training, and its batch sizes by stage."""

    request: LaunchRequest
    values: tuple[Suggested, ...]
    stages: tuple[BatchStage, ...]
    steps: int
    notes: tuple[str, ...]

    def value(self, name: str) -> float:
        """Return a suggested value by its name."""
        return next(item.value for item in self.values if item.name == name)

    @property
    def batch_size(self) -> int:
        """The batch size in sequences: of the only stage, or of the longest one."""
        ends = [*(stage.start for stage in self.stages[1:]), self.request.tokens]
        return max(zip(self.stages, ends, strict=True), key=lambda pair: pair[1] - pair[0].start)[0].batch_size


@dataclass(frozen=True)
class _Growth:
    """The critical batch size at the end of a training, in tokens, and the exponent of its growth with tokens."""

    critical: float
    exponent: float

    def tokens_at(self, batch: float, tokens: float) -> float:
        """Return the tokens after which the critical batch size is as large as a batch."""
        return tokens * float((batch / self.critical) ** (1 / self.exponent))


def _published_growth(request: LaunchRequest) -> _Growth:
    published = find_published("b_crit")[0]
    return _Growth(published.value(request.tokens) or 1.0, published.exponents["tokens"])


def plan_launch(request: LaunchRequest, laws: Laws, source: str) -> LaunchPlan:
    """Return the values for a planned training, from laws where there are any, else from published rules.

    Raises:
        PlanningError: The training is shorter than a step, or stages do not fit it.
    """
    size, best = _law_size(request, laws, source)
    rate = _law_rate(request, laws, source, size.value, best)
    critical = laws.laws["b_crit"].predict(request.tokens, request.parameters) if "b_crit" in laws.laws else None
    notes = []
    if critical is not None and size.value > critical.value:
        notes.append(
            f"A batch of {size.value:,.0f} tokens is above the critical one by the law, {critical.value:,.0f} "
            f"({critical.low:,.0f} to {critical.high:,.0f}): it costs more tokens than it saves steps."
        )
    growth = _published_growth(request)
    if critical is not None and laws.laws["b_crit"].exponents["tokens"] > 0:
        growth = _Growth(critical.value, laws.laws["b_crit"].exponents["tokens"])
    return _assemble(request, size, rate, growth, notes)


def plan_measured(request: LaunchRequest, curve: LawCurve) -> LaunchPlan:
    """Return the values for a planned training from one measured curve, carried to its tokens by published exponents.

    The batch size is the largest that needs at most 5 % more tokens than the fewest, times (D/D₀)^0.38 to 0.57.
    """
    summary = curve.answer.summary
    if summary is None:
        raise PlanningError(f"A launch needs a curve of two batch sizes or more. Found none: {curve.answer.refusal}")
    cheapest = summary.point(summary.regimes.cheapest)
    used = cheapest.batch_size * (cheapest.steps.value or 1.0) * curve.per_example
    ratio = request.tokens / used
    powers = sorted(ratio**exponent for exponent in EXPONENTS)
    low, high = (size * curve.per_example for size in summary.optimal.band)
    reason = f"{curve.name}: at most 5 % above the fewest tokens ({rounded_text(used)}), times (D/D₀)^0.38 to 0.57"
    size = Suggested(
        "batch_size", high * math.sqrt(powers[0] * powers[1]), low * powers[0], high * powers[1], Basis.MEASURED, reason
    )
    if request.batch_tokens is not None:
        size = _given(request.batch_tokens, size)
    rate = _published_rate(request, size.value, None)
    measured = curve.answer.curve.filter(curve.answer.curve["batch_size"] == cheapest.batch_size)
    if "learning_rate" in measured.columns and len(measured) and measured["learning_rate"][0] is not None:
        value = float(measured["learning_rate"][0]) * math.sqrt(size.value / (cheapest.batch_size * curve.per_example))
        reason = f"{curve.name}: the best at {cheapest.batch_size:,}, times the square root of the batch size"
        rate = Suggested("learning_rate", value, None, None, Basis.MEASURED, reason)
    return _assemble(request, size, rate, _published_growth(request), [])


def _law_size(request: LaunchRequest, laws: Laws, source: str) -> tuple[Suggested, float]:
    """Return the batch size in tokens, and the best one, by the law or by the published one."""
    if "b_opt" in laws.laws:
        plan = laws.laws["b_opt"].predict(request.tokens, request.parameters)
        where = "" if plan.outside == 1 else f", {plan.outside:.2g} times outside its points"
        best = Suggested("batch_size", plan.value, plan.low, plan.high, Basis.LAW, f"lowest loss by {source}{where}")
    else:
        published = find_published("b_opt")[0]
        value = published.value(request.tokens) or 0.0
        reason = f"{published.formula} ({published.source})"
        best = Suggested("batch_size", value, None, None, Basis.PUBLISHED, reason)
    if request.batch_tokens is None:
        return best, best.value
    return _given(request.batch_tokens, best), best.value


def _given(batch_tokens: float, best: Suggested) -> Suggested:
    span = "" if best.low is None else f" ({span_text(best.low, best.high)})"
    reason = f"given; {rounded_text(best.value)}{span} is the {best.reason}"
    return Suggested("batch_size", batch_tokens, None, None, Basis.GIVEN, reason)


def _law_rate(request: LaunchRequest, laws: Laws, source: str, size: float, best_size: float) -> Suggested:
    if "learning_rate" not in laws.laws:
        return _published_rate(request, size, best_size)
    plan = laws.laws["learning_rate"].predict(request.tokens, request.parameters)
    factor, text = _rate_factor(size, best_size)
    ends = (plan.low * factor, plan.high * factor)
    return Suggested("learning_rate", plan.value * factor, *ends, Basis.LAW, f"best at B_opt by {source}{text}")


def _published_rate(request: LaunchRequest, size: float, best_size: float | None) -> Suggested:
    published = find_published("learning_rate")[0]
    factor, text = _rate_factor(size, best_size or size)
    value = (published.value(request.tokens, request.parameters) or 0.0) * factor
    reason = f"{published.formula} ({published.source}){text}"
    return Suggested("learning_rate", value, None, None, Basis.PUBLISHED, reason)


def _rate_factor(size: float, best_size: float) -> tuple[float, str]:
    """Return the factor for another batch size than the best, by the square-root rule of Adam, and its text."""
    factor = math.sqrt(size / best_size)
    return (1.0, "") if abs(factor - 1) < 0.02 else (factor, f", times √(B/B_opt) = {factor:.2f}")


def _assemble(
    request: LaunchRequest, size: Suggested, rate: Suggested, growth: _Growth, notes: Sequence[str]
) -> LaunchPlan:
    wanted = size.value / request.sequence
    least = request.sequence * _whole(wanted, request.multiple_of)
    if request.tokens < least:
        raise PlanningError(
            f"A training must have one step or more. Found {request.tokens:,.0f} tokens in batches of {least:,}; give "
            "more tokens, a smaller --batch-size or a smaller --multiple-of."
        )
    if request.multiple_of > 2 * wanted:
        raise PlanningError(
            f"--multiple-of must fit the batch size. Found {request.multiple_of:,} for {wanted:,.1f} sequences of "
            f"{request.sequence:,} tokens; pass a smaller one."
        )
    sequences = _whole(wanted, request.multiple_of)
    if request.schedule is ScheduleKind.WARMUP:
        halvings = min(int(math.log2(sequences / request.multiple_of)), HALVINGS)
        sequences = _whole(wanted, request.multiple_of * 2**halvings)
    stages = _stages(request, sequences, growth)
    ends = [*(stage.start for stage in stages[1:]), request.tokens]
    steps = sum(
        math.ceil((end - stage.start) / (stage.batch_size * request.sequence))
        for stage, end in zip(stages, ends, strict=True)
    )
    batch = float(sequences * request.sequence)
    value, low, high = (max(0.5 ** (batch / life), LEAST_BETA2) for life in (HALF_LIFE, *HALF_LIVES))
    reason = (
        f"half-life of {HALF_LIFE / 1e6:.1f} M tokens, held fixed in tokens (Marek et al. 2025, arXiv 2507.07101); "
        "that of β2 = 0.95 at 2^19 tokens, to 0.98; never below 0.95"
    )
    beta = Suggested("beta2", value, low, high, Basis.PUBLISHED, reason)
    scale = TIME_SCALE[0] * (request.tokens / request.parameters) ** TIME_SCALE[1]
    decays = [None if end is None else batch / (end * scale * request.tokens) for end in (rate.high, rate.low)]
    reason = (
        f"time scale B/(ηλD) = {scale:.3g}, 1.084 (D/N)^-0.527 (Bergsma et al. 2025, arXiv 2505.13738); its interval "
        "is that of the learning rate"
    )
    weight_decay = batch / (rate.value * scale * request.tokens)
    decay = Suggested("weight_decay", weight_decay, decays[0], decays[1], Basis.PUBLISHED, reason)
    return LaunchPlan(request, (size, rate, beta, decay), stages, steps, tuple(notes))


def _whole(sequences: float, multiple_of: int) -> int:
    """Return the nearest multiple, at least one of them."""
    return max(round(sequences / multiple_of), 1) * multiple_of


def _stages(request: LaunchRequest, sequences: int, growth: _Growth) -> tuple[BatchStage, ...]:
    """Return the stages of a schedule around a batch size.

    A warm-up doubles the batch size as soon as the critical one, by its law in the tokens seen so far, is as large.
    """
    if request.schedule is ScheduleKind.STEPS:
        return _own_stages(request)
    if request.schedule is ScheduleKind.LATE:
        return (BatchStage(0, sequences), BatchStage(round(SWITCH_AT * request.tokens), LATE_FACTOR * sequences))
    if request.schedule is ScheduleKind.CONSTANT:
        return (BatchStage(0, sequences),)
    parts = (sequences // 2**part for part in range(HALVINGS, -1, -1) if sequences % 2**part == 0)
    first, *sizes = (batch for batch in parts if batch % request.multiple_of == 0)
    stages = [BatchStage(0, first)]
    for batch in sizes:
        start = round(growth.tokens_at(batch * request.sequence, request.tokens))
        if start >= request.tokens:
            break  # by its law the critical batch size never gets so large
        if start < stages[-1].start + stages[-1].batch_size * request.sequence:  # the stage before would have no step
            stages[-1] = BatchStage(stages[-1].start, batch)
        else:
            stages.append(BatchStage(start, batch))
    return tuple(stages)


def _own_stages(request: LaunchRequest) -> tuple[BatchStage, ...]:
    rule = "Stages must start at 0 tokens, grow, and begin before the training ends"
    if not request.stages:
        raise PlanningError(f"{rule}. Found none; give --stages '0:256k 10B:1M', say.")
    starts = [start for start, _ in request.stages]
    if starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] >= request.tokens:
        raise PlanningError(f"{rule}. Found starts at {', '.join(f'{start:,.0f}' for start in starts)} tokens.")
    return tuple(
        BatchStage(round(start), _whole(batch / request.sequence, request.multiple_of))
        for start, batch in request.stages
    )
