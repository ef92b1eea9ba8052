"""Time and cost of each configuration: of a run that succeeds, and expected until one succeeds.

With s steps of t seconds, start-up u and evaluations of e seconds, a run that succeeds takes R = u + s t + e, and one
that is given up after g steps F = u + g t + e_g. At a success rate of p there are (1 - p)/p failed runs before the one
that succeeds, so that R + F (1 - p)/p is expected. Hosts that may be taken away l times an hour, each time losing r
seconds (start-up again, and half the time between checkpoints), stretch everything by 1 / (1 - l r / 3600).

Intervals are multiplied in logarithms: those of steps and step time add up in squares, for they are independent. Ranges
of prices and of interruptions are no intervals of a mean: their ends multiply those of time and cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from batchscale.errors import PlanningError
from batchscale.planning.candidates import CANDIDATE_SCHEMA
from batchscale.planning.curve import rate_interval
from batchscale.planning.step_form import FloatArray
from batchscale.planning.step_model import ESTIMATED, MEASURED

PLAN_SCHEMA: Mapping[str, type[pl.DataType]] = {
    **CANDIDATE_SCHEMA,
    "devices": pl.Int64,
    "time_s": pl.Float64,  # of a run that succeeds, start-up and evaluations included
    "time_low_s": pl.Float64,  # null without an interval
    "time_high_s": pl.Float64,
    "cost": pl.Float64,
    "cost_low": pl.Float64,
    "cost_high": pl.Float64,
    "success_rate": pl.Float64,
    "success_rate_low": pl.Float64,
    "expected_time_s": pl.Float64,  # until a run succeeds, those that fail included
    "expected_time_low_s": pl.Float64,
    "expected_time_high_s": pl.Float64,
    "expected_cost": pl.Float64,
    "expected_cost_low": pl.Float64,
    "expected_cost_high": pl.Float64,
    "on_front": pl.Boolean,  # true: no other is both faster and cheaper
    "tokens_per_example": pl.Int64,  # null where it is unknown
}

CHECKPOINT_S = 60.0
"""The default time between two checkpoints of `batchscale train`; an interruption loses half of it."""


@dataclass(frozen=True)
class RunCosts:
    """The evaluations of a run.

    ``evaluation_s`` is one evaluation, made every ``evaluate_every`` steps.
    """

    evaluation_s: float = 0.0
    evaluate_every: float | None = None

    def __post_init__(self) -> None:
        if self.evaluation_s < 0 or (self.evaluate_every or 1) <= 0:
            raise PlanningError("The time of an evaluation is at least 0, the steps between two are above 0.")
        if self.evaluation_s and self.evaluate_every is None:
            raise PlanningError("The time of an evaluation needs the steps between two; give --evaluate-every.")

    def seconds(self, steps: FloatArray) -> FloatArray:
        """Return the seconds of all evaluations of a run of so many steps."""
        return np.asarray(steps * (self.evaluation_s / self.evaluate_every if self.evaluate_every else 0.0))


@dataclass(frozen=True)
class _Interval:
    """A number and the ends of its interval; NaN for a missing end."""

    low: FloatArray
    middle: FloatArray
    high: FloatArray

    def map(self, change: "FloatArray | float") -> "_Interval":
        return _Interval(self.low * change, self.middle * change, self.high * change)

    def plus(self, other: "_Interval") -> "_Interval":
        return _Interval(self.low + other.low, self.middle + other.middle, self.high + other.high)


def evaluate(candidates: pl.DataFrame, costs: RunCosts | None = None) -> tuple[pl.DataFrame, int]:
    """Return times and costs of every candidate as a frame of ``PLAN_SCHEMA``, and the number that never end.

    Rows are sorted by expected time. Configurations that are interrupted faster than they can start again never end;
    they are left out.
    """
    run_costs = costs or RunCosts()
    frame = candidates.with_columns((pl.col("hosts") * pl.col("devices_per_host")).alias("devices"))
    column = {name: frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in _NUMBERS}
    for kind in (MEASURED, ESTIMATED):
        column[f"is_{kind}"] = (frame["step_time_from"] == kind).cast(pl.Float64).to_numpy()
    stretch, endless = _stretch(column)
    run = _times(stretch, _successful(column, run_costs))
    failed = _times(stretch, _failed(column, run_costs))
    rate, rate_low, failures = _failures(column)
    expected = run.plus(_times(failures, failed))
    hourly = _hourly(column)
    cost = _plus_fixed(_times(hourly, run), column["fixed_price"])
    paid = _plus_fixed(_times(hourly, expected), column["fixed_price"])
    paid = paid.plus(_times(failures, _same(column["fixed_price"])))
    evaluated = frame.with_columns(
        *_columns("time", "_s", run),
        *_columns("cost", "", cost),
        pl.Series("success_rate", rate),
        pl.Series("success_rate_low", rate_low).fill_nan(None),
        *_columns("expected_time", "_s", expected),
        *_columns("expected_cost", "", paid),
    ).filter(pl.Series(~endless))
    ordered = evaluated.sort("expected_time_s", "expected_cost", "machine", "hosts", "batch_size")
    return ordered.with_columns(front_of(ordered)).select(*PLAN_SCHEMA), int(endless.sum())


def _stretch(column: Mapping[str, FloatArray]) -> tuple[_Interval, NDArray[np.bool_]]:
    """Return the factor by which interruptions stretch a run, and where a run never ends."""
    each = (column["startup_s"] + CHECKPOINT_S / 2) / 3600
    rate = column["interruptions_per_hour"]
    low, high = (_given(column[f"interruptions_{end}"], rate) for end in ("low", "high"))
    endless = rate * each >= 1

    def factor(interruptions: FloatArray) -> FloatArray:
        lost = interruptions * each
        return np.asarray(1 / np.where(lost >= 1, np.nan, 1 - lost))

    return _Interval(factor(low), factor(rate), factor(high)), endless


def _hourly(column: Mapping[str, FloatArray]) -> _Interval:
    price = column["price_per_hour"]
    low, high = (_given(column[f"price_{end}"], price) for end in ("low", "high"))
    return _Interval(low, price, high).map(1 / 3600)


def _given(values: FloatArray, otherwise: FloatArray) -> FloatArray:
    return np.asarray(np.where(np.isnan(values), otherwise, values))


_NUMBERS = (
    "steps",
    "steps_low",
    "steps_high",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "attempts",
    "successes",
    "give_up",
    "price_per_hour",
    "fixed_price",
    "startup_s",
    "interruptions_per_hour",
    "price_low",
    "price_high",
    "interruptions_low",
    "interruptions_high",
)


def front_of(ordered: pl.DataFrame) -> pl.Series:
    """Mark the rows that are cheaper than all faster ones, in a frame sorted by expected time, then cost."""
    cost = ordered["expected_cost"].to_numpy()
    before = np.concatenate([[np.inf], np.minimum.accumulate(cost)[:-1]]) if len(cost) else cost
    return pl.Series("on_front", cost < before, dtype=pl.Boolean)


def _successful(column: Mapping[str, FloatArray], costs: RunCosts) -> _Interval:
    work = column["steps"] * column["step_time_s"] + costs.seconds(column["steps"])
    # A bare curve leaves no interval, but must not hide that of an estimate.
    bare = (column["is_estimated"] > 0) & np.isnan(column["steps_low"]) & np.isnan(column["steps_high"])
    steps_down = np.where(bare, 0.0, np.log(column["steps"] / column["steps_low"]))
    steps_up = np.where(bare, 0.0, np.log(column["steps_high"] / column["steps"]))
    down, up = _step_widths(column)
    shrink, grow = np.exp(-np.hypot(steps_down, down)), np.exp(np.hypot(steps_up, up))
    return _Interval(work * shrink, work, work * grow).plus(_same(column["startup_s"]))


def _step_widths(column: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the half widths of the interval of the step time, down and up, in logarithms.

    One measurement without repetitions adds nothing; a model without an interval leaves none.
    """
    low, middle, high = column["step_time_low_s"], column["step_time_s"], column["step_time_high_s"]
    alone = column["is_measured"] > 0
    down = np.log(middle / np.where(np.isnan(low) & alone, middle, low))
    up = np.log(np.where(np.isnan(high) & alone, middle, high) / middle)
    return np.asarray(down), np.asarray(up)


def _failed(column: Mapping[str, FloatArray], costs: RunCosts) -> _Interval:
    steps = np.where(np.isnan(column["give_up"]), 0.0, column["give_up"])
    work = steps * column["step_time_s"] + costs.seconds(steps)
    down, up = _step_widths(column)
    return _Interval(work * np.exp(-down), work, work * np.exp(up)).plus(_same(column["startup_s"]))


def _failures(column: Mapping[str, FloatArray]) -> tuple[FloatArray, FloatArray, _Interval]:
    """Return success rates, their lower ends, and expected failed runs before the one that succeeds.

    If no run has failed none is expected, however few there were; the lower end of the rate reflects their number.
    """
    attempts, successes = column["attempts"], column["successes"]
    has_attempts = ~np.isnan(attempts)
    rate = np.where(has_attempts, successes / np.where(has_attempts, attempts, 1), 1.0)
    low, high = np.full(len(rate), np.nan), np.ones(len(rate))
    for n, s in {(n, s) for n, s in zip(attempts[has_attempts], successes[has_attempts], strict=True)}:
        at = (attempts == n) & (successes == s)
        low[at], high[at] = rate_interval(int(s), int(n))
    some = rate < 1
    sure = np.where(some, low, 1.0)
    return rate, low, _Interval((1 - high) / high * some, (1 - rate) / rate, (1 - sure) / sure)


def _times(a: _Interval, b: _Interval) -> _Interval:
    return _Interval(a.low * b.low, a.middle * b.middle, a.high * b.high)


def _same(values: FloatArray) -> _Interval:
    return _Interval(values, values, values)


def _plus_fixed(cost: _Interval, fixed: FloatArray) -> _Interval:
    return cost.plus(_same(fixed))


def _columns(name: str, suffix: str, three: _Interval) -> list[pl.Series]:
    return [
        pl.Series(f"{name}{suffix}", three.middle),
        pl.Series(f"{name}_low{suffix}", three.low).fill_nan(None),
        pl.Series(f"{name}_high{suffix}", three.high).fill_nan(None),
    ]
