"""Distances to the ends of a search space, and the space to search next.

The paper repeats a search with a new space when the optimal trial lies near a boundary (section 4). Distances are in
unit coordinates, so that every scale is judged alike; DISCRETE metaparameters have no edge. Which ends a study's best
trial lies at is decided in ``edge_guard``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from batchscale.search.units import to_unit
from batchscale.spec.bounds import Bounds, natural_bounds
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace

_NEAREST_TO_ONE = 1e-6  # 1 - value never gets smaller than this when a REVERSE_LOG range moves up
_SMALLEST_RATIO = 1e-12  # and a LOG range never moves below this


class Side(StrEnum):
    """An end of a range."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True)
class Edge:
    """How far a value lies from one end of its range, as a share of the unit range.

    ``natural`` says that the range ends there because the metaparameter itself does (momentum 0): nothing lies
    beyond, so nothing is missed.
    """

    parameter: str
    side: Side
    distance: float
    natural: bool = False


def edge_distances(space: SearchSpace, values: Mapping[str, float], train_steps: int | None = None) -> list[Edge]:
    """The distance of a trial to both ends of every range, nearest first."""
    edges: list[Edge] = []
    for config in space:
        if config.type is ParameterType.DISCRETE or config.name not in values or config.min_value == config.max_value:
            continue
        unit = to_unit(config, values[config.name])
        if math.isnan(unit):
            continue
        bounds = natural_bounds(config.name, train_steps)
        edges.append(Edge(config.name, Side.LOW, unit, natural=config.min_value <= bounds.low))
        edges.append(Edge(config.name, Side.HIGH, 1 - unit, natural=config.max_value >= bounds.high))
    return sorted(edges, key=lambda edge: edge.distance)


def propose_space(space: SearchSpace, edges: Iterable[Edge], train_steps: int | None = None) -> SearchSpace:
    """The space to search next: each range moved outwards by half its width, within its natural bounds.

    The width on the range's own scale stays the same, except where a natural bound cuts it.
    """
    shifts = {edge.parameter: -0.5 if edge.side is Side.LOW else 0.5 for edge in edges}
    return shift_space(space, shifts, train_steps)


def shift_space(space: SearchSpace, shifts: Mapping[str, float], train_steps: int | None = None) -> SearchSpace:
    """The space with ranges moved by these shares of their width on their own scale, within their natural bounds."""
    return space.replace(*(_move(space[name], shift, train_steps) for name, shift in shifts.items()))


def _move(config: ParameterConfig, shift: float, train_steps: int | None) -> ParameterConfig:
    bounds = natural_bounds(config.name, train_steps)
    low, high = (_clip(config, _slide(config, end, shift), bounds) for end in (config.min_value, config.max_value))
    if not low < high:
        return config
    return ParameterConfig(config.name, config.type, low, high, config.scale)


def _slide(config: ParameterConfig, end: float, shift: float) -> float:
    low, high = config.min_value, config.max_value
    if config.scale is Scale.LOG:
        return max(end * math.pow(high / low, shift), _SMALLEST_RATIO)
    if config.scale is Scale.REVERSE_LOG:
        return 1 - max((1 - end) * math.pow((1 - high) / (1 - low), shift), _NEAREST_TO_ONE)
    return end + shift * (high - low)


def _clip(config: ParameterConfig, value: float, bounds: Bounds) -> float:
    if config.type is ParameterType.INTEGER:
        value = float(round(value))
    if value < bounds.low or (bounds.low_open and value <= bounds.low):
        value = config.min_value if bounds.low_open else bounds.low
    if value > bounds.high or (bounds.high_open and value >= bounds.high):
        value = config.max_value if bounds.high_open else bounds.high
    return value
