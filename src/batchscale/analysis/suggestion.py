"""Which metaparameters to train with at a batch size: the best measured there, or between its neighbours."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from batchscale.analysis.answers import select_workload
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.results import results_of
from batchscale.analysis.winners import winner_edges
from batchscale.errors import AnalysisError
from batchscale.records.frames import Records
from batchscale.records.notes import study_note
from batchscale.search import to_unit, to_value
from batchscale.spec import Goal, ParameterConfig, ParameterType, Scale, SearchSpace, WorkloadName

CLOSE = 0.1  # trials within this share of the best steps give the range

SUGGESTION_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "metaparameter": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,  # over the trials that came within 10 % of the best steps
    "high": pl.Float64,
    "trials": pl.Int64,  # how many such trials
}


@dataclass(frozen=True)
class Suggestion:
    """Metaparameters for one batch size.

    ``source`` is "measured", "interpolated" between ``batch_sizes``, or "nearest": the batch size lies outside what
    was measured, and the values are those of the nearest end. ``notes`` say by batch size what lowers the trust in a
    study behind the values: a winner at an edge, more than one search.
    """

    workload: WorkloadName
    goal: Goal
    batch_size: int
    source: str
    batch_sizes: tuple[int, ...]
    steps: float
    values: pl.DataFrame
    notes: Mapping[int, str]


def suggest(records: Records, workload: WorkloadName, goal: Goal, batch_size: int) -> Suggestion:
    """The metaparameters measured best at a batch size, or interpolated between its neighbours.

    Between neighbours every value moves in proportion to log batch size, in the unit coordinates of a range that
    holds both neighbours' ranges (so a LOG range moves in logarithms); a DISCRETE metaparameter and one that only one
    neighbour has take the nearer neighbour's value.

    Raises:
        AnalysisError: no study reached the goal.
    """
    if batch_size < 1:
        raise AnalysisError(f"A batch size is a whole number of at least 1. Found {batch_size}.")
    selected = select_workload(records, workload)
    outcomes = trial_outcomes(selected, goal)
    winners = results_of(outcomes).filter(pl.col("steps").is_not_null()).sort("batch_size")
    if winners.is_empty():
        raise AnalysisError(f"No COMPLETE trial of {workload} reached '{goal}'; choose a goal within reach.")
    sizes = winners["batch_size"].to_list()
    below = max((size for size in sizes if size <= batch_size), default=sizes[0])
    above = min((size for size in sizes if size >= batch_size), default=sizes[-1])
    outside = not sizes[0] <= batch_size <= sizes[-1]
    weight = 0.0 if below == above else math.log(batch_size / below) / math.log(above / below)
    ends = [_End.of(selected, outcomes, winners, size) for size in (below, above)]
    rows = [_between(name, ends, weight) for name in selected.metaparameters]
    source = "nearest" if outside else "measured" if below == above else "interpolated"
    steps = math.exp((1 - weight) * math.log(max(ends[0].steps, 1)) + weight * math.log(max(ends[1].steps, 1)))
    frame = pl.DataFrame([row for row in rows if row is not None], schema=SUGGESTION_SCHEMA, orient="row")
    measured = tuple(dict.fromkeys((below, above)))
    notes = _notes(selected, winners.filter(pl.col("batch_size").is_in(measured)))
    return Suggestion(workload, goal, batch_size, source, measured, steps, frame, notes)


def _notes(records: Records, winners: pl.DataFrame) -> dict[int, str]:
    rows = winner_edges(records, winners).select("batch_size", "edge", "at_edge", "searches").rows()
    notes = {size: study_note(edge if at_edge else None, searches) for size, edge, at_edge, searches in rows}
    return {size: note for size, note in notes.items() if note}


@dataclass(frozen=True, eq=False)  # two ends are told apart by identity: frames have no equality
class _End:
    """A measured neighbour: its winner, the trials close to it, its space."""

    steps: int
    winner: Mapping[str, float | None]
    close: pl.DataFrame
    space: SearchSpace

    @classmethod
    def of(cls, records: Records, outcomes: pl.DataFrame, winners: pl.DataFrame, size: int) -> "_End":
        winner = winners.filter(pl.col("batch_size") == size).row(0, named=True)
        close = outcomes.filter(
            (pl.col("batch_size") == size)
            & (pl.col("outcome") == Outcome.REACHED.value)
            & (pl.col("steps_to_goal") <= winner["steps"] * (1 + CLOSE))
        )
        configs = records.studies.filter(pl.col("batch_size") == size)["parameter_configs"][0]
        return cls(winner["steps"], winner, close, SearchSpace.from_json(json.loads(configs)))


def _between(name: str, ends: list[_End], weight: float) -> tuple[str, float, float, float, int] | None:
    known = [end for end in ends if end.winner.get(name) is not None]
    if not known:
        return None
    nearer = ends[round(weight)] if any(end is ends[round(weight)] for end in known) else known[0]
    config = _joint_config(name, ends)
    lows, highs = [], []
    for end in known:
        values = end.close[name].drop_nulls()
        lows.append(float(str(values.min())))
        highs.append(float(str(values.max())))
    trials = sum(len(end.close) for end in known) if weight else len(nearer.close)
    if len(known) < 2 or weight == 0 or config is None:
        value = float(nearer.winner[name] or 0.0)
        return name, value, min(lows), max(highs), trials
    value = _mix(config, float(ends[0].winner[name] or 0.0), float(ends[1].winner[name] or 0.0), weight)
    low, high = _mix(config, lows[0], lows[1], weight), _mix(config, highs[0], highs[1], weight)
    return name, value, min(low, value), max(high, value), trials


def _mix(config: ParameterConfig, first: float, second: float, weight: float) -> float:
    unit = (1 - weight) * to_unit(config, first) + weight * to_unit(config, second)
    return to_value(config, unit)


def _joint_config(name: str, ends: list[_End]) -> ParameterConfig | None:
    """A range on the scale that both spaces use, wide enough for both and for all values; None if there is none."""
    configs = [end.space[name] for end in ends if name in end.space]
    if len(configs) < 2 or any(config.type is ParameterType.DISCRETE for config in configs):
        return None
    if configs[0].scale is not configs[1].scale or configs[0].type is not configs[1].type:
        return None
    values = [value for end in ends for value in end.close[name].drop_nulls().to_list()]
    low = min(*(config.min_value for config in configs), *values)
    high = max(*(config.max_value for config in configs), *values)
    scale = configs[0].scale
    if (scale is Scale.LOG and low <= 0) or (scale is Scale.REVERSE_LOG and high >= 1) or low == high:
        return None
    return ParameterConfig(name, configs[0].type, low, high, scale)
