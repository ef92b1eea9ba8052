"""Several curves side by side: normalised overlay, ratios of critical batch sizes with intervals, and sentences."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.units import EXAMPLES, SizeUnit
from batchscale.errors import AnalysisError
from batchscale.formatting import percent_text, rounded_text, span_text
from batchscale.records.metadata.study import curve_note

COMPARISON_SCHEMA: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "name": pl.String,
    "workload": pl.String,
    "goal": pl.String,
    "perfect_scaling_end": pl.Int64,
    "max_useful_batch_size": pl.Int64,
    "max_useful_reached": pl.Boolean,
    "s_min": pl.Float64,
    "b_crit": pl.Float64,
    "b_crit_low": pl.Float64,
    "b_crit_high": pl.Float64,
    "b_opt": pl.Float64,  # the size of fewest examples, between the measured ones
    "b_opt_low": pl.Float64,
    "b_opt_high": pl.Float64,
    "ratio": pl.Float64,  # b_crit over that of the first; null if one of them is bounded on neither side
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "end_ratio": pl.Float64,  # perfect_scaling_end over that of the first
    "notes": pl.String,  # batch sizes with the winner at an edge, and those that were searched again
    "doubts": pl.List(pl.String),  # reasons to trust the curve less
    "unfinished": pl.List(pl.Int64),  # batch sizes whose search has not ended
}

NORMALISED_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "name": pl.String,
    "batch_size": pl.Int64,
    "steps": pl.Float64,
    "normalised_steps": pl.Float64,  # over the curve's own steps at the normalising batch size
    "normalised_at": pl.Int64,
}


@dataclass(frozen=True)
class Comparison:
    """The table (the first curve is the reference of the others), the overlay, and the sentences."""

    table: pl.DataFrame
    overlay: pl.DataFrame
    sentences: tuple[str, ...]


def compare(answers: Mapping[str, Analysis], *, level: float = 0.9, normalise_at: int | None = None) -> Comparison:
    """Compare curves with the first of them.

    The overlay is empty where the curves share no batch size to normalise at; ratios need none.

    Raises:
        AnalysisError: There are fewer than two curves, or they do not share the batch size ``normalise_at``.
    """
    if len(answers) < 2:
        raise AnalysisError(f"A comparison needs two curves or more. Found {len(answers)}.")
    first = next(iter(answers.values()))
    rows = [
        (*_row(name, answer, first), _notes(answer.curve, answer.unit), list(answer.doubts), list(answer.unfinished))
        for name, answer in answers.items()
    ]
    table = pl.DataFrame(rows, schema=COMPARISON_SCHEMA, orient="row")
    curves = {name: answer.curve for name, answer in answers.items()}
    overlay = pl.DataFrame(schema=NORMALISED_SCHEMA)
    if normalise_at is not None or shared_sizes(curves):
        overlay = normalise(curves, normalise_at)
    return Comparison(table, overlay, _sentences(answers, table, level))


def shared_sizes(curves: Mapping[str, pl.DataFrame]) -> list[int]:
    """Return the batch sizes at which every curve reached its goal, growing."""
    reached = [set(curve.filter(pl.col("steps") > 0)["batch_size"].to_list()) for curve in curves.values()]
    return sorted(int(size) for size in set.intersection(*reached)) if reached else []


def normalise(curves: Mapping[str, pl.DataFrame], at: int | None = None) -> pl.DataFrame:
    """Return curves over their own steps at one batch size, by default the smallest that all reached (Figure 3)."""
    points = {name: curve.filter(pl.col("steps") > 0).sort("batch_size") for name, curve in curves.items()}
    shared = shared_sizes(curves)
    if at is None:
        at = min(shared, default=None)
    if at is None or at not in shared:
        raise AnalysisError(
            f"The normalising batch size must be one at which every curve reached its goal. They share {shared}"
            + ("." if at is None else f", not {at}.")
        )
    frames = []
    for name, frame in points.items():
        unit = float(frame.filter(pl.col("batch_size") == at)["steps"][0])
        steps = pl.col("steps").cast(pl.Float64)
        frames.append(
            frame.select(
                pl.lit(name).alias("name"),
                pl.col("batch_size").cast(pl.Int64),
                steps.alias("steps"),
                (steps / unit).alias("normalised_steps"),
                pl.lit(at, dtype=pl.Int64).alias("normalised_at"),
            )
        )
    return pl.concat(frames)


def ratio_of(estimate: Estimate, other: Estimate) -> Estimate:
    """Return the ratio of two independent estimates with its interval, from the intervals of both.

    The distances of the ends from the values add in quadrature, in logarithms (Zou and Donner's MOVER); an end that
    is not bounded leaves the end of the ratio unbounded.
    """
    if not estimate.value or not other.value:
        return Estimate()
    centre = math.log(estimate.value / other.value)

    def reach(near: float | None, of: float, far: float | None, against: float) -> float | None:
        if not near or not far:
            return None
        return math.hypot(math.log(near / of), math.log(far / against))

    down = reach(estimate.low, estimate.value, other.high, other.value)
    up = reach(estimate.high, estimate.value, other.low, other.value)
    low, high = (None if down is None else math.exp(centre - down)), (None if up is None else math.exp(centre + up))
    return Estimate(estimate.value / other.value, low, high)


def _row(name: str, answer: Analysis, first: Analysis) -> tuple[object, ...]:
    head = (name, str(answer.workload or name), None if answer.goal is None else str(answer.goal))
    summary, reference = answer.summary, first.summary
    if summary is None:
        return (*head, *(None,) * 14)
    regimes, critical, optimal = summary.regimes, summary.critical, summary.optimal.batch_size
    ratio = Estimate()
    if answer is first and critical.value is not None:
        ratio = Estimate(1.0, 1.0, 1.0)
    elif reference is not None and critical.has_interval and reference.critical.has_interval:
        ratio = ratio_of(critical, reference.critical)
    return (
        *head,
        regimes.perfect_end,
        regimes.max_useful_batch_size,
        regimes.max_useful_reached,
        None if summary.fit is None else summary.fit.s_min,
        critical.value,
        critical.low,
        critical.high,
        optimal.value,
        optimal.low,
        optimal.high,
        ratio.value,
        ratio.low,
        ratio.high,
        None if reference is None else regimes.perfect_end / reference.regimes.perfect_end,
    )


def _notes(curve: pl.DataFrame, unit: SizeUnit) -> str | None:
    if "at_edge" not in curve.columns:
        return None  # bare points
    flags = ("at_edge", "extra_searches")
    sizes = [curve.filter(pl.col(flag).fill_null(False))["batch_size"].to_list() for flag in flags]
    return curve_note(*(unit.sizes(some) if some else "" for some in sizes))


def _sentences(answers: Mapping[str, Analysis], table: pl.DataFrame, level: float) -> tuple[str, ...]:
    """Return a verdict for each curve but the first, then what makes them hard to compare, then the doubts of each."""
    rows: Sequence[Mapping[str, object]] = list(table.iter_rows(named=True))
    first_name, first = next(iter(answers.items()))
    verdicts = [_verdict(answers, rows, place, level) for place in range(1, len(rows))]
    goals = [
        f"{name} was measured to another goal than {first_name} ({answer.goal} against {first.goal}): a difference may "
        "come from the goal."
        for name, answer in answers.items()
        if _differs(answer, first)
    ]
    tokens = {name: answer.unit.tokens_per_example for name, answer in answers.items()}
    units = [
        f"An example of {name} has {_tokens(count)}, one of {first_name} {_tokens(tokens[first_name])}: batch sizes "
        "are compared in examples."
        for name, count in tokens.items()
        if count != tokens[first_name]
    ]
    doubts = [f"Doubt about {name}: {doubt}." for name, answer in answers.items() for doubt in answer.doubts]
    return (*verdicts, *goals, *units, *doubts)


def _tokens(count: int | None) -> str:
    return "no stated tokens" if count is None else f"{count:,} tokens"


def common_unit(answers: Iterable[Analysis]) -> SizeUnit:
    """Return the unit that all curves have in common; examples if they differ."""
    units = {answer.unit for answer in answers}
    return units.pop() if len(units) == 1 else EXAMPLES


def _differs(answer: Analysis, first: Analysis) -> bool:
    return None not in (answer.goal, first.goal) and answer.goal != first.goal


def _caution(first_name: str, first: Analysis, name: str, answer: Analysis) -> str:
    """Return the reason why a difference is not called more than chance, or an empty text."""
    if _differs(answer, first):
        return "but the goals differ"
    unfinished = [each for each, of in ((name, answer), (first_name, first)) if of.unfinished]
    if unfinished:
        return f"but {' and '.join(unfinished)} {'is' if len(unfinished) == 1 else 'are'} not finished"
    return "which the doubts below may explain" if answer.doubts or first.doubts else ""


def _verdict(answers: Mapping[str, Analysis], table: Sequence[Mapping[str, object]], place: int, level: float) -> str:
    row, first = table[place], table[0]
    (first_name, first_answer), (name, answer) = (list(answers.items())[i] for i in (0, place))
    end, ratio = row["end_ratio"], row["ratio"]
    if not isinstance(end, float):
        return f"{name} cannot be compared with {first_name}: one of them has too few points."
    text = _ends_text(name, answer, first_name, first_answer, end)
    if not isinstance(ratio, float):
        unknown = [str(of["name"]) for of in (row, first) if of["b_crit_low"] is None and of["b_crit_high"] is None]
        why = f": the critical batch size of {' and of '.join(unknown)} is not bounded" if unknown else ""
        return f"{text}. There is no ratio of critical batch sizes{why}."
    low, high = row["ratio_low"], row["ratio_high"]
    below, above = (bound if isinstance(bound, float) else None for bound in (low, high))
    span = span_text(below, above)
    chance = "which may be chance"
    if (below is not None and below > 1) or (above is not None and above < 1):
        chance = _caution(first_name, first_answer, name, answer) or "more than chance"
    interval = f" ({percent_text(level)} interval {span})" if span else ""
    return f"{text}; its critical batch size is {rounded_text(ratio)} times as large{interval}, {chance}."


def _ends_text(name: str, answer: Analysis, first_name: str, first: Analysis, ratio: float) -> str:
    """State how far one curve scales perfectly against the other, as measured, unless the noise leaves it open."""
    assert answer.summary is not None and first.summary is not None
    ends = answer.summary.regimes.perfect_scaling_end, first.summary.regimes.perfect_scaling_end
    if answer.summary.regimes.is_end_open or first.summary.regimes.is_end_open:
        return f"The noise is too large to tell if {name} or {first_name} scales perfectly further"
    if ratio == 1:
        return f"{name} and {first_name} end perfect scaling at the same batch size"
    apart = max(end.low or 0.0 for end in ends) > min(end.high or math.inf for end in ends)
    chance = "" if apart else " (which may be chance)"
    if ratio > 1:
        return f"{name} extends perfect scaling {rounded_text(ratio)}-fold over {first_name}{chance}"
    return f"{name} ends perfect scaling {rounded_text(1 / ratio)} times earlier than {first_name}{chance}"
