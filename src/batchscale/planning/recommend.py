"""The recommendations of a plan: the fastest, the cheapest, the best within a budget or a deadline, and how sure.

Configurations are compared by expected time and expected cost, failed runs included.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from batchscale.errors import PlanningError
from batchscale.planning.curve import half_width_factor
from batchscale.planning.step_model import MEASURED

Choice = dict[str, Any]
"""A row of a plan's frame, by column."""

TIME, COST = "expected_time", "expected_cost"

PICKS = ("fastest", "cheapest", "budget", "deadline")
"""The recommendations that a job can start, by name."""


@dataclass(frozen=True)
class PriceMargin:
    """The factor by which the price of the cheapest machine may rise before ``rival`` is cheaper.

    ``fall`` is the factor to which the rival's price would have to fall instead; None where its price has no effect.
    """

    rise: float
    fall: float | None
    rival: Choice


@dataclass(frozen=True)
class NextMeasurement:
    """One more measurement that would separate configurations, and its effect on the interval.

    ``kind`` is "run" or "step time". ``before`` and ``after`` are half widths of the interval of the time as factors.
    """

    kind: str
    choice: Choice
    before: float
    after: float | None
    settles: bool


@dataclass(frozen=True)
class Recommendations:
    """The recommended rows of a frame of ``PLAN_SCHEMA``.

    ``within_budget`` and ``within_deadline`` are None without a limit, or if no configuration meets it. ``as_fast``
    and ``as_cheap`` are configurations whose intervals overlap those of the fastest and the cheapest.
    """

    fastest: Choice
    cheapest: Choice
    twice_the_money: Choice
    within_budget: Choice | None
    within_deadline: Choice | None
    front: tuple[Choice, ...]
    as_fast: tuple[Choice, ...]
    as_cheap: tuple[Choice, ...]
    price_margin: PriceMargin | None
    next_measurement: NextMeasurement | None

    def pick(self, name: str) -> Choice | None:
        """Return the configuration of one of ``PICKS``; None if there is none."""
        choices = (self.fastest, self.cheapest, self.within_budget, self.within_deadline)
        return dict(zip(PICKS, choices, strict=True))[name]


def recommend(plan: pl.DataFrame, budget: float | None = None, deadline_s: float | None = None) -> Recommendations:
    """Return the recommendations of a plan with at least one configuration."""
    if plan.is_empty():
        raise PlanningError("A recommendation needs at least one configuration. Found none.")
    for value, name in ((budget, "budget"), (deadline_s, "deadline")):
        if value is not None and not (0 < value < math.inf):
            raise PlanningError(f"A {name} must be a positive number. Found {value:g}.")
    fastest, cheapest = fastest_of(plan), cheapest_of(plan)
    assert fastest is not None and cheapest is not None
    twice = fastest_of(plan.filter(pl.col(COST) <= 2 * cheapest[COST]))
    assert twice is not None
    as_fast = overlapping(plan, fastest, TIME, "_s")
    return Recommendations(
        fastest=fastest,
        cheapest=cheapest,
        twice_the_money=twice,
        within_budget=None if budget is None else fastest_of(plan.filter(pl.col(COST) <= budget)),
        within_deadline=None if deadline_s is None else cheapest_of(plan.filter(pl.col(f"{TIME}_s") <= deadline_s)),
        front=tuple(plan.filter("on_front").sort(f"{TIME}_s").to_dicts()),
        as_fast=as_fast,
        as_cheap=overlapping(plan, cheapest, COST, ""),
        price_margin=_price_margin(plan, cheapest),
        next_measurement=_next_measurement(fastest, as_fast),
    )


def fastest_of(plan: pl.DataFrame) -> Choice | None:
    """Return the row of least expected time, then of least expected cost; None without rows."""
    return _first(plan.sort(f"{TIME}_s", COST, "machine", "hosts", "batch_size"))


def cheapest_of(plan: pl.DataFrame) -> Choice | None:
    """Return the row of least expected cost, then of least expected time; None without rows."""
    return _first(plan.sort(COST, f"{TIME}_s", "machine", "hosts", "batch_size"))


def _first(plan: pl.DataFrame) -> Choice | None:
    return plan.row(0, named=True) if plan.height else None


def overlapping(plan: pl.DataFrame, choice: Choice, column: str, suffix: str) -> tuple[Choice, ...]:
    """Return the other configurations whose interval overlaps that of the choice, best first.

    A missing end of an interval counts as its middle.
    """
    middle, low, high = f"{column}{suffix}", f"{column}_low{suffix}", f"{column}_high{suffix}"
    top = choice[high] if choice[high] is not None else choice[middle]
    others = plan.filter(pl.coalesce(low, middle) <= top).sort(middle)
    return tuple(row for row in others.to_dicts() if not is_same(row, choice))


def is_same(a: Choice, b: Choice) -> bool:
    """True if two rows are the same configuration with the same recipe."""
    keys = ("machine", "hosts", "devices_per_host", "batch_size", "metaparameters", "give_up")
    return all(a[key] == b[key] for key in keys)


def _price_margin(plan: pl.DataFrame, cheapest: Choice) -> PriceMargin | None:
    """The nearest rival is on another machine: prices of one machine move together."""
    rival = cheapest_of(plan.filter(pl.col("machine") != cheapest["machine"]))
    hourly = _hourly_part(cheapest)
    if rival is None or hourly <= 0:
        return None
    rise = (rival[COST] - cheapest[COST] + hourly) / hourly
    fall = (cheapest[COST] - rival[COST] + _hourly_part(rival)) / _hourly_part(rival)
    return PriceMargin(rise, fall if fall > 0 else None, rival)


def _hourly_part(choice: Choice) -> float:
    return float(choice["price_per_hour"] * choice[f"{TIME}_s"] / 3600)


def _next_measurement(fastest: Choice, as_fast: Sequence[Choice]) -> NextMeasurement | None:
    """The widest cause of doubt between the fastest and its nearest rival, and the effect of one more measurement."""
    if not as_fast:
        return None
    doubts = [(width, kind, choice) for choice in (fastest, as_fast[0]) for kind, width in _widths(choice).items()]
    if not doubts:
        return None
    width, kind, choice = max(doubts, key=lambda doubt: doubt[0])
    rest = [w for other, w in _widths(choice).items() if other != kind]
    narrowed = _narrower(kind, choice, width)
    after = None if narrowed is None else math.hypot(narrowed, *rest)
    settles = after is not None and _are_apart(choice, as_fast[0] if choice is fastest else fastest, after)
    return NextMeasurement(
        kind, choice, math.exp(math.hypot(width, *rest)), None if after is None else math.exp(after), settles
    )


def _widths(choice: Choice) -> dict[str, float]:
    """Half widths of the interval of the time in logarithms, by the kind of measurement that narrows them."""
    widths = {}
    if choice["steps_high"] is not None:
        widths["run"] = math.log(choice["steps_high"] / choice["steps"])
    if choice["step_time_from"] != MEASURED:
        high = choice["step_time_high_s"]
        widths["step time"] = math.inf if high is None else math.log(high / choice["step_time_s"])
    return {kind: width for kind, width in widths.items() if width > 0}


def _narrower(kind: str, choice: Choice, width: float) -> float | None:
    """The half width after one more measurement; None where it cannot be predicted."""
    if kind == "step time":
        return 0.0
    successes = choice["successes"]
    if successes is None or successes < 2:
        return None
    return width * half_width_factor(successes + 1) / half_width_factor(successes)


def _are_apart(choice: Choice, other: Choice, width: float) -> bool:
    """True if the intervals would not overlap with this half width of the choice and the same middles."""
    first, second = sorted((choice, other), key=lambda row: float(row[f"{TIME}_s"]))
    top = first[f"{TIME}_s"] * math.exp(width) if first is choice else first[f"{TIME}_high_s"]
    bottom = second[f"{TIME}_s"] * math.exp(-width) if second is choice else second[f"{TIME}_low_s"]
    return top is not None and bottom is not None and bool(top < bottom)
