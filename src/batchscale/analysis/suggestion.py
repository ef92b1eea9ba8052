"""Suggested metaparameters for a batch size: measured there, between neighbours, or by the measured trend."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from batchscale.analysis.curve_analysis import analyze, check_complete, select_workload
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.metaparameters import Optimum, Trend, fit_trend, from_scale, soft_optimum, to_scale
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.results import results_of, winner_edges
from batchscale.errors import AnalysisError
from batchscale.records.frames import Records, searched_spaces
from batchscale.records.metadata.study import study_note
from batchscale.spec.goal import Goal
from batchscale.spec.space import ParameterConfig, ParameterType, Scale
from batchscale.spec.workload_name import WorkloadName

CLOSE = 0.1  # trials within this share of the best steps are listed beside a measured winner
LEVEL = 0.9  # of the range of the best value

SUGGESTION_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "metaparameter": pl.String,
    "value": pl.Float64,
    "range_low": pl.Float64,  # 90 % range of the best value, from the scatter of the measured optima; null: unknown
    "range_high": pl.Float64,
    "low": pl.Float64,  # over the trials that came within 10 % of the best steps; null: not measured at this size
    "high": pl.Float64,
    "trials": pl.Int64,  # the number of such trials
}


class SuggestionSource(StrEnum):
    """The source of suggested values."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    NEAREST = "nearest"


@dataclass(frozen=True)
class Suggestion:
    """Metaparameters for one batch size.

    ``source``: "measured" there, "interpolated" between two ``batch_sizes``, "extrapolated" by the trend of the
    optima at all of them, or "nearest": outside of what was measured at fewer than three sizes, which show no trend.
    ``steps`` has the steps to expect, with their interval; no value if unknown. ``notes`` has by batch size
    the reasons to trust a study behind the values less: a winner at an edge, more than one search.
    """

    workload: WorkloadName
    goal: Goal
    batch_size: int
    source: str
    batch_sizes: tuple[int, ...]
    steps: Estimate
    values: pl.DataFrame
    notes: Mapping[int, str]


def suggest(records: Records, workload: WorkloadName, goal: Goal, batch_size: int) -> Suggestion:
    """Return the metaparameters measured best at a batch size, or between its neighbours, or by the trend of all sizes.

    Between neighbours every value moves in proportion to log batch size on its own scale. Outside the measured sizes
    it follows the straight line of the measured optima there. A DISCRETE metaparameter, and one whose scale the
    studies do not share, takes the nearest size's value.

    Raises:
        AnalysisError: No study reached the goal.
    """
    if batch_size < 1:
        raise AnalysisError(f"A batch size is a whole number of at least 1. Found {batch_size}.")
    selected = select_workload(records, workload)
    check_complete(selected, workload)
    outcomes = trial_outcomes(selected, goal)
    winners = results_of(outcomes).filter(pl.col("steps").is_not_null()).sort("batch_size")
    if winners.is_empty():
        raise AnalysisError(f"No COMPLETE trial of {workload} reached '{goal}'; choose a goal within reach.")
    neighbours = _Neighbourhood(selected, outcomes, winners, batch_size)
    rows = [_row(neighbours, name) for name in selected.metaparameters]
    frame = pl.DataFrame([row for row in rows if row is not None], schema=SUGGESTION_SCHEMA, orient="row")
    notes = _notes(selected, outcomes, winners.filter(pl.col("batch_size").is_in(neighbours.behind)))
    steps = _steps(records, workload, goal, neighbours)
    return Suggestion(workload, goal, batch_size, neighbours.source.value, neighbours.behind, steps, frame, notes)


class _Neighbourhood:
    """The batch size of a suggestion, between the measured ones."""

    def __init__(self, records: Records, outcomes: pl.DataFrame, winners: pl.DataFrame, batch_size: int) -> None:
        self.winners, self.batch_size = winners, batch_size
        self.reached = outcomes.filter(pl.col("outcome") == Outcome.REACHED.value)
        self.sizes: list[int] = winners["batch_size"].to_list()
        self.below = max((size for size in self.sizes if size <= batch_size), default=self.sizes[0])
        self.above = min((size for size in self.sizes if size >= batch_size), default=self.sizes[-1])
        self.spaces = {study[-1]: spaces[-1] for study, spaces in searched_spaces(records).items()}

    @property
    def source(self) -> SuggestionSource:
        if not self.sizes[0] <= self.batch_size <= self.sizes[-1]:
            return SuggestionSource.EXTRAPOLATED if len(self.sizes) > 2 else SuggestionSource.NEAREST
        return SuggestionSource.MEASURED if self.below == self.above else SuggestionSource.INTERPOLATED

    @property
    def behind(self) -> tuple[int, ...]:
        """The measured sizes that the values come from."""
        if self.source is SuggestionSource.EXTRAPOLATED:
            return tuple(self.sizes)
        return tuple(dict.fromkeys((self.below, self.above)))

    @property
    def weight(self) -> float:
        """The share of the way from the neighbour below to that above, in logarithms."""
        if self.below == self.above:
            return 0.0
        return math.log(self.batch_size / self.below) / math.log(self.above / self.below)

    def winner(self, name: str, size: int) -> float | None:
        """Return the winner's value at a measured size."""
        value = self.winners.filter(pl.col("batch_size") == size)[name][0]
        return None if value is None else float(value)

    def trials(self, name: str, size: int) -> pl.DataFrame:
        """Return values and steps of the trials that reached the goal at a measured size."""
        return self.reached.filter(
            (pl.col("batch_size") == size) & pl.col(name).is_not_null() & (pl.col("steps_to_goal") > 0)
        ).select(pl.col(name).alias("value"), pl.col("steps_to_goal").cast(pl.Float64).alias("steps"))

    def config(self, name: str) -> ParameterConfig | None:
        """Return the configuration whose scale values are mixed on; None if they may not be mixed."""
        configs = [self.spaces[size][name] for size in self.sizes if name in self.spaces[size]]
        kinds = {(config.scale, config.type) for config in configs}
        if len(kinds) != 1 or configs[0].type is ParameterType.DISCRETE:
            return None
        values = [value for size in self.sizes for value in self.trials(name, size)["value"].to_list()]
        scale = configs[0].scale
        bad = (scale is Scale.LOG and min(values, default=1) <= 0) or (
            scale is Scale.REVERSE_LOG and max(values, default=0) >= 1
        )
        return None if bad else configs[0]


def _row(neighbours: _Neighbourhood, name: str) -> tuple[object, ...] | None:
    sizes = [size for size in neighbours.sizes if neighbours.winner(name, size) is not None]
    if not sizes:
        return None
    nearest = min(sizes, key=lambda size: abs(math.log(size / neighbours.batch_size)))
    config = neighbours.config(name)
    measured = neighbours.source is SuggestionSource.MEASURED and nearest == neighbours.batch_size
    near: tuple[object, ...] = (None, None, None)
    if measured:
        best = float(neighbours.winners.filter(pl.col("batch_size") == nearest)["steps"][0])
        close = neighbours.trials(name, nearest).filter(pl.col("steps") <= (1 + CLOSE) * best)["value"]
        near = (close.min(), close.max(), len(close))
    if config is None:
        return name, neighbours.winner(name, nearest), None, None, *near
    optima = [_optimum(neighbours, config, size) for size in sizes if len(neighbours.trials(name, size))]
    trend = fit_trend(optima)
    value, centre = _value(neighbours, config, sizes, nearest, trend, optima)
    low, high = _range(neighbours, config, value, centre, trend)
    return name, value, low, high, *near


def _optimum(neighbours: _Neighbourhood, config: ParameterConfig, size: int) -> Optimum:
    trials = neighbours.trials(config.name, size)
    places = trials["value"].map_elements(lambda value: to_scale(config, value), return_dtype=pl.Float64)
    return Optimum(math.log(size), soft_optimum(places.to_numpy(), trials["steps"].to_numpy()))


def _value(
    neighbours: _Neighbourhood,
    config: ParameterConfig,
    sizes: list[int],
    nearest: int,
    trend: Trend | None,
    optima: list[Optimum],
) -> tuple[float, float | None]:
    """Return the value to train with, and the middle of its range on the scale (None where there is no range)."""
    log_size = math.log(neighbours.batch_size)
    nearest_value = neighbours.winner(config.name, nearest)
    assert nearest_value is not None
    if neighbours.source is SuggestionSource.EXTRAPOLATED and trend is not None:
        return from_scale(config, trend.at(log_size)), trend.at(log_size)
    ends = (neighbours.below, neighbours.above)
    places = {optimum.log_size: optimum.place for optimum in optima}
    if neighbours.source is SuggestionSource.INTERPOLATED and all(size in sizes for size in ends):
        winners = [to_scale(config, neighbours.winner(config.name, size) or 0.0) for size in ends]
        soft = [places.get(math.log(size)) for size in ends]
        value = from_scale(config, (1 - neighbours.weight) * winners[0] + neighbours.weight * winners[1])
        if soft[0] is None or soft[1] is None:
            return value, None
        return value, (1 - neighbours.weight) * soft[0] + neighbours.weight * soft[1]
    inside = neighbours.source is SuggestionSource.MEASURED and nearest == neighbours.batch_size
    return nearest_value, places.get(math.log(nearest)) if inside else None


def _range(
    neighbours: _Neighbourhood, config: ParameterConfig, value: float, centre: float | None, trend: Trend | None
) -> tuple[float | None, float | None]:
    if centre is None or trend is None:
        return None, None
    measured = neighbours.source is not SuggestionSource.EXTRAPOLATED
    reach = trend.reach(math.log(neighbours.batch_size), LEVEL, measured=measured)
    ends = from_scale(config, centre - reach), from_scale(config, centre + reach)
    return min(*ends, value), max(*ends, value)


def _steps(records: Records, workload: WorkloadName, goal: Goal, neighbours: _Neighbourhood) -> Estimate:
    summary = analyze(records, workload, goal).summary
    if summary is not None:
        steps = summary.steps_at(neighbours.batch_size)
        if steps.value is not None or neighbours.source is SuggestionSource.NEAREST:
            return steps
    logs = [
        math.log(max(float(neighbours.winners.filter(pl.col("batch_size") == size)["steps"][0]), 1.0))
        for size in (neighbours.below, neighbours.above)
    ]
    if neighbours.source in (SuggestionSource.MEASURED, SuggestionSource.INTERPOLATED):
        return Estimate(math.exp((1 - neighbours.weight) * logs[0] + neighbours.weight * logs[1]))
    return Estimate()


def _notes(records: Records, outcomes: pl.DataFrame, winners: pl.DataFrame) -> dict[int, str]:
    rows = winner_edges(records, outcomes, winners).select("batch_size", "edge", "at_edge", "searches").rows()
    notes = {size: study_note(edge if at_edge else None, searches) for size, edge, at_edge, searches in rows}
    return {size: note for size, note in notes.items() if note}
