"""The edge guard: is the best trial so near an end of its range that the search should be repeated elsewhere?

The paper repeats a search with a new space when the optimal trial lies near a boundary (section 4). Distances are in
unit coordinates, so that every scale is judged alike; DISCRETE metaparameters have no edge.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from batchscale.search.units import to_unit
from batchscale.spec.bounds import Bounds, natural_bounds
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace

DEFAULT_MARGIN = 0.05

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


def edge_distances(space: SearchSpace, values: Mapping[str, float]) -> list[Edge]:
    """The distance of a trial to both ends of every range, nearest first."""
    edges: list[Edge] = []
    for config in space:
        if config.type is ParameterType.DISCRETE or config.name not in values or config.min_value == config.max_value:
            continue
        unit = to_unit(config, values[config.name])
        if math.isnan(unit):
            continue
        bounds = natural_bounds(config.name)
        edges.append(Edge(config.name, Side.LOW, unit, natural=config.min_value <= bounds.low))
        edges.append(Edge(config.name, Side.HIGH, 1 - unit, natural=config.max_value >= bounds.high))
    return sorted(edges, key=lambda edge: edge.distance)


def joint_distances(spaces: Iterable[SearchSpace], values: Mapping[str, float]) -> list[Edge]:
    """The distance of a trial to both ends of every range when several spaces were searched, nearest first.

    Each end counts as far away as the space that reaches furthest beyond the trial has it: what one search covered
    is no edge, whichever search the trial belongs to.
    """
    ends: dict[tuple[str, Side], Edge] = {}
    for space in spaces:
        for edge in edge_distances(space, values):
            other = ends.setdefault((edge.parameter, edge.side), edge)
            distance, natural = max(edge.distance, other.distance), edge.natural or other.natural
            ends[edge.parameter, edge.side] = Edge(edge.parameter, edge.side, distance, natural)
    return sorted(ends.values(), key=lambda edge: edge.distance)


def find_edges(
    spaces: Iterable[SearchSpace], values: Mapping[str, float], margin: float = DEFAULT_MARGIN
) -> tuple[Edge, ...]:
    """The ends that a trial lies at, when these spaces were searched: what "at edge" means, wherever it is said.

    It lies at an end that is nearer than ``margin``, that no search of the study reached beyond, and that has something
    beyond it.
    """
    return tuple(edge for edge in joint_distances(spaces, values) if edge.distance < margin and not edge.natural)


def propose_space(space: SearchSpace, edges: Iterable[Edge]) -> SearchSpace:
    """The space to search next: each range moved outwards by half its width, within its natural bounds.

    The width on the range's own scale stays the same, except where a natural bound cuts it.
    """
    return shift_space(space, {edge.parameter: -0.5 if edge.side is Side.LOW else 0.5 for edge in edges})


def shift_space(space: SearchSpace, shifts: Mapping[str, float]) -> SearchSpace:
    """The space with ranges moved by these shares of their width on their own scale, within their natural bounds."""
    return space.replace(*(_move(space[name], shift) for name, shift in shifts.items()))


def _move(config: ParameterConfig, shift: float) -> ParameterConfig:
    bounds = natural_bounds(config.name)
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
