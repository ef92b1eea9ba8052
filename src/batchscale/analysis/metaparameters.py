"""Quantities derived from metaparameters, and the errors of heuristics for the learning rate (Figures 8, 21 and 22).

``optima`` has the trend that suggestions follow instead.
The effective learning rate is η/(1-γ), with γ = 0 where there is no momentum (section 2.2).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from batchscale.analysis.outcomes import Outcome
from batchscale.analysis.units import SizeUnit
from batchscale.errors import AnalysisError
from batchscale.formatting import metaparameter_text, tokens_text

EFFECTIVE = "effective_learning_rate"
NEAR = 1.5  # trials within this factor of a heuristic's rate represent it
CLOSE = 2.0  # a heuristic "fits" as long as the best rate is within this factor of it


class Heuristic(StrEnum):
    """A rule of thumb for the learning rate when the batch grows b-fold: multiply by b, or by the root of b."""

    LINEAR = "linear"
    SQUARE_ROOT = "square_root"

    @property
    def power(self) -> float:
        """The power of the batch size."""
        return 1.0 if self is Heuristic.LINEAR else 0.5


BETA2_HALF_LIFE = "beta2_half_life"  # as a searched metaparameter is named that is given in this unit
DECAY_TIME_SCALE = "decay_time_scale"


def derive_values(
    values: Mapping[str, float | None], batch_size: int, steps: float, unit: SizeUnit
) -> dict[str, float]:
    """Return what the values of an Adam-like optimizer mean at a batch size, as far as they determine it.

    ``beta2_half_life`` is the data after which a squared gradient counts half, ln 2 / -ln β2 times the batch size, in
    tokens (in examples, if the tokens of an example are unknown). ``decay_time_scale`` is B/(ηλD), the part of the
    training over which decoupled weight decay averages the updates of the weights: B is the batch size and D = steps
    times B the training data, both in the same unit, so that it is 1/(ηλ steps).

    >>> values = {"learning_rate": 0.01, "weight_decay": 0.1, "beta2": 0.5}
    >>> derive_values(values, batch_size=32, steps=5000, unit=SizeUnit(512))
    {'beta2_half_life': 16384.0, 'decay_time_scale': 0.2}
    """
    derived = {}
    beta2, rate, decay = (values.get(name) for name in ("beta2", "learning_rate", "weight_decay"))
    if beta2 is not None and 0 < beta2 < 1:
        derived[BETA2_HALF_LIFE] = math.log(2) / -math.log(beta2) * batch_size * (unit.tokens_per_example or 1)
    is_adam_like = any(values.get(name) is not None for name in ("beta1", "beta2", "beta1_half_life", BETA2_HALF_LIFE))
    if is_adam_like and rate and decay and steps > 0:
        derived[DECAY_TIME_SCALE] = 1 / (rate * decay * steps)
    return derived


def derived_label(name: str, unit: SizeUnit) -> str:
    """Return the heading of a derived quantity.

    >>> derived_label("beta2_half_life", SizeUnit(512)), derived_label("decay_time_scale", SizeUnit())
    ('half-life of β2 (tokens)', 'time scale B/(ηλD)')
    """
    return {BETA2_HALF_LIFE: f"half-life of β2 ({unit.noun})", DECAY_TIME_SCALE: "time scale B/(ηλD)"}[name]


def derived_text(name: str, value: float | None) -> str:
    """Write a derived quantity.

    >>> derived_text("beta2_half_life", 443_000.0), derived_text("decay_time_scale", 0.2134), derived_text("x", None)
    ('443k', '0.21', '')
    """
    if value is None:
        return ""
    return tokens_text(value) if name == BETA2_HALF_LIFE else metaparameter_text(value, 2)


HEURISTIC_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "batch_size": pl.Int64,
    "heuristic": pl.String,
    "best": pl.Float64,  # the rate of the winning trial
    "predicted": pl.Float64,  # by the heuristic, from the smallest batch size
    "factor": pl.Float64,  # predicted / best
    "slowdown": pl.Float64,  # fewest steps of the trials near the prediction / steps to result; null: none near reached
}


def add_effective_learning_rate(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with ``effective_learning_rate`` η/(1-γ); unchanged where there is no learning rate."""
    if "learning_rate" not in frame.columns:
        return frame
    momentum = pl.col("momentum").fill_null(0.0) if "momentum" in frame.columns else pl.lit(0.0)
    return frame.with_columns((pl.col("learning_rate") / (1 - momentum)).alias(EFFECTIVE))


def heuristic_errors(results: pl.DataFrame, outcomes: pl.DataFrame, *, rate: str = EFFECTIVE) -> pl.DataFrame:
    """Return the errors of the linear and square-root heuristics at every batch size of one curve.

    Args:
        results: ``steps_to_result`` of one workload and goal.
        outcomes: ``trial_outcomes`` of the same, for the slowdown.
        rate: ``effective_learning_rate`` or ``learning_rate``.

    Returns:
        A frame of ``HEURISTIC_SCHEMA``; heuristics are drawn from the smallest batch size that reached the goal.
    """
    rated = add_effective_learning_rate(results)
    if rate not in rated.columns:
        raise AnalysisError(f"These trials have no '{rate}', so no heuristic can be judged.")
    points = rated.filter(pl.col("steps").is_not_null() & pl.col(rate).is_not_null()).sort("batch_size")
    trials = add_effective_learning_rate(outcomes).filter(pl.col("outcome") == Outcome.REACHED.value)
    rows = []
    for heuristic in Heuristic:
        for size, steps, best in points.select("batch_size", "steps", rate).rows():
            base_size, base_rate = points["batch_size"][0], points[rate][0]
            predicted = base_rate * (size / base_size) ** heuristic.power
            near = trials.filter(
                (pl.col("batch_size") == size) & pl.col(rate).is_between(predicted / NEAR, predicted * NEAR)
            )
            fewest = near["steps_to_goal"].min() if len(near) else None
            slowdown = None if fewest is None or not steps else float(str(fewest)) / steps
            rows.append((size, heuristic.value, best, predicted, predicted / best, slowdown))
    return pl.DataFrame(rows, schema=HEURISTIC_SCHEMA, orient="row")


@dataclass(frozen=True)
class HeuristicFit:
    """The error of a heuristic: rms of log2(predicted/best), and the batch size up to which it stays close."""

    heuristic: Heuristic
    rms_log2: float
    close_up_to: int
    worst_factor: float


def judge_heuristics(errors: pl.DataFrame) -> list[HeuristicFit]:
    """Return both heuristics, the better one first, with the batch size up to which each is within a factor two."""
    fits = []
    for heuristic in Heuristic:
        rows = errors.filter(pl.col("heuristic") == heuristic.value).sort("batch_size")
        if rows.is_empty():
            continue
        logs = np.log2(rows["factor"].to_numpy())
        off = np.flatnonzero(np.abs(logs) > math.log2(CLOSE))
        last = int(off[0]) - 1 if off.size else len(logs) - 1
        worst = float(2 ** np.abs(logs).max())
        fits.append(HeuristicFit(heuristic, float(np.sqrt((logs**2).mean())), int(rows["batch_size"][last]), worst))
    return sorted(fits, key=lambda fit: fit.rms_log2)


def heuristic_sentence(fits: list[HeuristicFit]) -> str:
    """State which heuristic fits better, and up to which batch size."""
    if len(fits) < 2:
        return "Too few points to judge the heuristics for the learning rate."
    best, other = fits
    names = {Heuristic.LINEAR: "linear", Heuristic.SQUARE_ROOT: "square-root"}
    return (
        f"The {names[best.heuristic]} heuristic follows the best learning rate better (off by a factor "
        f"{_factor(2**best.rms_log2)} typically, {_factor(best.worst_factor)} at worst; within a factor two "
        f"up to batch size {best.close_up_to:,}) than the {names[other.heuristic]} one ({_factor(2**other.rms_log2)} "
        f"typically, {_factor(other.worst_factor)} at worst)."
    )


def _factor(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
