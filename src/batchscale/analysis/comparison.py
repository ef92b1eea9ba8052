"""Several curves side by side: normalised overlay, ratios of critical batch sizes with intervals, and sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.intervals import Estimate
from batchscale.errors import AnalysisError
from batchscale.formatting import list_sizes, percent_text, rounded_text, span_text
from batchscale.records.metadata.study import curve_note

COMPARISON_SCHEMA: Mapping[str, type[pl.DataType]] = {
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
    "ratio": pl.Float64,  # b_crit over that of the first
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "end_ratio": pl.Float64,  # perfect_scaling_end over that of the first
    "notes": pl.String,  # batch sizes with the winner at an edge, and those that were searched again
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
    rows = [(*_row(name, answer, first), _notes(answer.curve)) for name, answer in answers.items()]
    table = pl.DataFrame(rows, schema=COMPARISON_SCHEMA, orient="row")
    curves = {name: answer.curve for name, answer in answers.items()}
    overlay = pl.DataFrame(schema=NORMALISED_SCHEMA)
    if normalise_at is not None or shared_sizes(curves):
        overlay = normalise(curves, normalise_at)
    return Comparison(table, overlay, _sentences(table, level))


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
        return (*head, *(None,) * 11)
    regimes, critical = summary.regimes, summary.critical
    ratio = Estimate()
    if answer is first and critical.value is not None:
        ratio = Estimate(1.0, 1.0, 1.0)
    elif reference is not None:
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
        ratio.value,
        ratio.low,
        ratio.high,
        None if reference is None else regimes.perfect_end / reference.regimes.perfect_end,
    )


def _notes(curve: pl.DataFrame) -> str | None:
    if "at_edge" not in curve.columns:
        return None  # bare points
    flags = ("at_edge", "extra_searches")
    sizes = [curve.filter(pl.col(flag).fill_null(False))["batch_size"].to_list() for flag in flags]
    return curve_note(*(list_sizes(some) if some else "" for some in sizes))


def _sentences(table: pl.DataFrame, level: float) -> tuple[str, ...]:
    rows: Sequence[Mapping[str, object]] = list(table.iter_rows(named=True))
    return tuple(_sentence(row, rows[0], level) for row in rows[1:])


def _sentence(row: Mapping[str, object], first: Mapping[str, object], level: float) -> str:
    end, ratio = row["end_ratio"], row["ratio"]
    if not isinstance(end, float):
        return f"{row['name']} cannot be compared with {first['name']}: one of them has too few points."
    if end == 1:
        text = f"{row['name']} and {first['name']} end perfect scaling at the same batch size"
    elif end > 1:
        text = f"{row['name']} extends perfect scaling {rounded_text(end)}-fold over {first['name']}"
    else:
        text = f"{row['name']} ends perfect scaling {rounded_text(1 / end)} times earlier than {first['name']}"
    if not isinstance(ratio, float):
        return text + "."
    low, high = row["ratio_low"], row["ratio_high"]
    below, above = (end if isinstance(end, float) else None for end in (low, high))
    span = span_text(below, above)
    chance = ""
    if span:
        apart = (below is not None and below > 1) or (above is not None and above < 1)
        chance = ", more than chance" if apart else ", which may be chance"
    interval = f" ({percent_text(level)} interval {span})" if span else ""
    return f"{text}; its critical batch size is {rounded_text(ratio)} times as large{interval}{chance}."
