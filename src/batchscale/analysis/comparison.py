"""Several curves side by side: normalised overlay, ratios of critical batch sizes with intervals, and a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.analyze import Analysis
from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import DEFAULT_RESAMPLING, Resampling, draw_curves
from batchscale.analysis.scaling import fit_many
from batchscale.analysis.sentences import list_sizes
from batchscale.errors import AnalysisError

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
    "notes": pl.String,  # at which batch sizes the winner is at an edge, and which were searched again
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
    """The table (first curve is what the others are held against), the overlay, and the sentences."""

    table: pl.DataFrame
    overlay: pl.DataFrame
    sentences: tuple[str, ...]


def compare(
    answers: Mapping[str, Analysis], resampling: Resampling = DEFAULT_RESAMPLING, *, normalise_at: int | None = None
) -> Comparison:
    """Hold curves against the first of them.

    Raises:
        AnalysisError: there are fewer than two curves, or they share no batch size to normalise at.
    """
    if len(answers) < 2:
        raise AnalysisError(f"A comparison needs two curves or more. Found {len(answers)}.")
    names = list(answers)
    logs = [_draws(answers[name], resampling, seed=i) for i, name in enumerate(names)]
    rows = [
        (*_row(name, answers[name], answers[names[0]], draw, logs[0], resampling), _notes(answers[name].curve))
        for name, draw in zip(names, logs, strict=True)
    ]
    table = pl.DataFrame(rows, schema=COMPARISON_SCHEMA, orient="row")
    overlay = normalise({name: answer.curve for name, answer in answers.items()}, normalise_at)
    return Comparison(table, overlay, _sentences(table, resampling.level))


def normalise(curves: Mapping[str, pl.DataFrame], at: int | None = None) -> pl.DataFrame:
    """Curves over their own steps at one batch size (the smallest that all reached, unless given): Figures 3, 5, 6."""
    points = {name: curve.filter(pl.col("steps") > 0).sort("batch_size") for name, curve in curves.items()}
    shared = set.intersection(*(set(frame["batch_size"].to_list()) for frame in points.values())) if points else set()
    if at is None:
        at = min(shared, default=None)
    if at is None or at not in shared:
        raise AnalysisError(
            f"Curves are normalised at a batch size that each of them reached its goal at. They share {sorted(shared)}"
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


def _draws(answer: Analysis, resampling: Resampling, seed: int) -> Array | None:
    """Draws of log B_crit, independent between curves."""
    if answer.regimes is None or answer.regimes.fit is None:
        return None
    apart = Resampling(resampling.level, resampling.draws, resampling.seed + 7919 * (seed + 1))
    try:
        curves = draw_curves(answer.points, apart)
    except AnalysisError:
        return None
    sizes = np.array([float(point.batch_size) for point in answer.points])
    return fit_many(np.log(sizes), np.log(curves), answer.regimes.fit.best.family)


def _row(
    name: str, answer: Analysis, first: Analysis, draws: Array | None, base: Array | None, resampling: Resampling
) -> tuple[object, ...]:
    found, against = answer.regimes, first.regimes
    head = (name, str(answer.workload or name), None if answer.goal is None else str(answer.goal))
    if found is None:
        return (*head, *(None,) * 11)
    fit = found.fit
    interval = None if answer.intervals is None else answer.intervals.b_crit
    ratio: tuple[float | None, ...] = (None, None, None)
    if fit is not None and against is not None and against.fit is not None:
        low = high = None
        if answer is first:
            low = high = 1.0
        elif draws is not None and base is not None:
            low, high = (float(end) for end in np.exp(np.quantile(draws - base, resampling.ends)))
        ratio = (fit.b_crit / against.fit.b_crit, low, high)
    return (
        *head,
        found.perfect_scaling_end,
        found.max_useful_batch_size,
        found.max_useful_reached,
        None if fit is None else fit.s_min,
        None if fit is None else fit.b_crit,
        None if interval is None else interval.low,
        None if interval is None else interval.high,
        *ratio,
        None if against is None else found.perfect_scaling_end / against.perfect_scaling_end,
    )


def _notes(curve: pl.DataFrame) -> str | None:
    if "at_edge" not in curve.columns:
        return None  # bare points
    notes = []
    for flag, words in (("at_edge", "at edge"), ("extra_searches", "searched again")):
        sizes = curve.filter(pl.col(flag).fill_null(False))["batch_size"].to_list()
        if sizes:
            notes.append(f"{words} at batch size {list_sizes(sizes)}")
    return "; ".join(notes) or None


def _sentences(table: pl.DataFrame, level: float) -> tuple[str, ...]:
    rows: Sequence[Mapping[str, object]] = list(table.iter_rows(named=True))
    return tuple(_sentence(row, rows[0], level) for row in rows[1:])


def _sentence(row: Mapping[str, object], first: Mapping[str, object], level: float) -> str:
    end, ratio = row["end_ratio"], row["ratio"]
    if not isinstance(end, float):
        return f"{row['name']} cannot be held against {first['name']}: one of them has too few points."
    if end == 1:
        text = f"{row['name']} and {first['name']} end perfect scaling at the same batch size"
    elif end > 1:
        text = f"{row['name']} extends perfect scaling {end:.3g}-fold over {first['name']}"
    else:
        text = f"{row['name']} ends perfect scaling {1 / end:.3g} times earlier than {first['name']}"
    if not isinstance(ratio, float):
        return text + "."
    low, high = row["ratio_low"], row["ratio_high"]
    span = (
        f" ({level:.0%} interval {low:.3g} to {high:.3g})" if isinstance(low, float) and isinstance(high, float) else ""
    )
    sure = ""
    if span and isinstance(low, float) and isinstance(high, float):
        sure = ", more than chance" if low > 1 or high < 1 else ", which may be chance"
    return f"{text}; its critical batch size is {ratio:.3g} times as large{span}{sure}."
