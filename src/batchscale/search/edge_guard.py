"""The edge guard: the ends of its search space that a study's best trial lies at, and the space to search next.

The paper repeats a search with a new space when the optimal trial lies near a boundary (section 4). Two rules decide
what counts as near. The distance depends on how densely the space was sampled: the best of six trials is far from an
end that the best of a hundred would touch. And the trials must get better towards the end, because a metaparameter
that hardly matters leaves its best trial anywhere. ``benchmarks/edge_guard.py`` measures both kinds of mistakes.

Distances are in unit coordinates, the same for every scale. DISCRETE metaparameters have no edge.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from batchscale.search.points import to_unit
from batchscale.spec.space import Bounds, ParameterConfig, ParameterType, Scale, SearchSpace, natural_bounds

DEFAULT_MARGIN = 0.05

_SPACINGS = 2.0  # the best of n trials stands for everything within this many mean distances between them
_WIDEST = 0.3  # the largest distance that counts as near, with however few trials
_WIDE_MARGINS = 3.0  # margins that count as near if the last third of the range clearly gets better towards the end
_LAST_SHARE = 1 / 3
_TREND = 1.5  # the t value of a rank correlation from which on trials count as better towards an end
_FEWEST = 4  # trials besides the best one that a trend needs
_NEAREST_TO_ONE = 1e-6  # 1 - value never gets smaller than this when a REVERSE_LOG range moves up
_SMALLEST_RATIO = 1e-12  # and a LOG range never moves below this


class Side(StrEnum):
    """An end of a range."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True)
class Edge:
    """The distance of a value from one end of its range, as a share of the unit range.

    ``natural`` means that the metaparameter itself ends there (momentum 0): nothing lies beyond.
    """

    parameter: str
    side: Side
    distance: float
    natural: bool = False


@dataclass(frozen=True)
class RankedTrial:
    """The metaparameters of a trial and its score: smaller is better, infinite if it diverged."""

    values: Mapping[str, float]
    score: tuple[float, ...]


def goal_score(reached_at: int | None, best: float, *, diverged: bool = False) -> tuple[float, ...]:
    """Return a score: trials that reached the goal by their steps, others by their best value, diverged ones last.

    ``best`` is smaller when better, for either direction of the goal.
    """
    if diverged:
        return (2.0, math.inf)
    return (1.0, best) if reached_at is None else (0.0, float(reached_at))


def find_edges(
    spaces: Sequence[SearchSpace],
    trials: Sequence[RankedTrial],
    margin: float = DEFAULT_MARGIN,
    train_steps: int | None = None,
) -> tuple[Edge, ...]:
    """Return the ends that the best trial lies at, nearest first; none with a margin of 0.

    Args:
        spaces: The spaces of a study's searches. A value inside one of them is at no edge, in whichever search the
            trial was.
        trials: All trials of these searches by id, diverged ones too: of equally good ones the first is the best.
        margin: The distance that counts as near in a densely sampled space, as a share of the range.
        train_steps: The step budget, which bounds everything counted in steps.
    """
    if not trials or margin <= 0:
        return ()
    ordered = sorted(trials, key=lambda trial: trial.score)
    ranked = list(zip(ordered, _ranks(ordered), strict=True))
    ends = far_ends(spaces, ordered[0].values, train_steps)
    return tuple(edge for edge, space in ends if not edge.natural and _is_open(edge, space, ranked, margin))


def near_distance(num_trials: int, margin: float = DEFAULT_MARGIN, *, at_edge: bool = False) -> float:
    """Return the distance from an end within which a best trial counts as near, as a share of the range.

    Args:
        num_trials: The trials in the range.
        margin: The distance in a densely sampled space.
        at_edge: True for a best trial that is at an edge: in some cases it may lie a few margins away.
    """
    near = max(margin, min(_WIDEST, _SPACINGS / (num_trials + 1)))
    return max(near, _WIDE_MARGINS * margin) if at_edge else near


def _ranks(ordered: Sequence[RankedTrial]) -> list[float]:
    """Return the places in the order; equally good trials share the mean of theirs."""
    ranks: list[float] = []
    for _, group in groupby(ordered, key=lambda trial: trial.score):
        count = len(list(group))
        ranks += [len(ranks) + (count - 1) / 2] * count
    return ranks


def edge_distances(space: SearchSpace, values: Mapping[str, float], train_steps: int | None = None) -> list[Edge]:
    """Return the distance of a trial to both ends of every range, nearest first."""
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


def far_ends(
    spaces: Sequence[SearchSpace], values: Mapping[str, float], train_steps: int | None = None
) -> list[tuple[Edge, SearchSpace]]:
    """Return both ends of every range with the space that reaches furthest beyond the trial there, nearest first."""
    ends: dict[tuple[str, Side], tuple[Edge, SearchSpace]] = {}
    for space in spaces:
        for edge in edge_distances(space, values, train_steps):
            furthest = ends.get((edge.parameter, edge.side))
            if furthest is None or edge.distance > furthest[0].distance:
                ends[edge.parameter, edge.side] = (edge, space)
    return sorted(ends.values(), key=lambda end: end[0].distance)


def _is_open(edge: Edge, space: SearchSpace, ranked: Sequence[tuple[RankedTrial, float]], margin: float) -> bool:
    """True if better values may lie beyond the edge."""
    if edge.distance >= max(_WIDE_MARGINS * margin, _WIDEST):
        return False  # too far for each of the rules below
    points = [(_nearness(edge, space, trial), rank) for trial, rank in ranked]
    inside = [point for point in points if 0 <= point[0] <= 1]
    others = [point for point in points[1:] if 0 <= point[0] <= 1]  # that the best trial is good proves nothing
    if len(others) < _FEWEST:
        return edge.distance < margin
    if edge.distance < near_distance(len(inside), margin) and _trend(others) > _TREND:
        return True
    last = [point for point in others if point[0] >= 1 - _LAST_SHARE]
    return edge.distance < _WIDE_MARGINS * margin and len(last) >= _FEWEST and _trend(last) > _TREND


def _nearness(edge: Edge, space: SearchSpace, trial: RankedTrial) -> float:
    """Return the position of a trial along the edge's metaparameter: 1 at the edge, 0 at the other end."""
    unit = to_unit(space[edge.parameter], trial.values.get(edge.parameter, math.nan))
    return unit if edge.side is Side.HIGH else 1 - unit


def _trend(points: Sequence[tuple[float, float]]) -> float:
    """Return the t value of the correlation between nearness and (negative) rank: positive where trials get better.

    >>> round(_trend([(0.1, 3), (0.4, 2), (0.6, 0), (0.9, 1)]), 2)
    1.69
    """
    count = len(points)
    mean_x, mean_y = (sum(values) / count for values in zip(*points, strict=True))
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    xy = sum((x - mean_x) * (mean_y - y) for x, y in points)
    if xx <= 0 or yy <= 0:
        return 0.0
    correlation: float = max(-1.0, min(1.0, xy / math.sqrt(xx * yy)))
    return correlation * math.sqrt((count - 2) / max(1e-12, 1 - correlation * correlation))


def propose_space(space: SearchSpace, edges: Iterable[Edge], train_steps: int | None = None) -> SearchSpace:
    """Return the space to search next: each range moved outwards by half its width, within its natural bounds.

    The width on the range's own scale stays the same, except where a natural bound cuts it.
    """
    shifts = {edge.parameter: -0.5 if edge.side is Side.LOW else 0.5 for edge in edges}
    return shift_space(space, shifts, train_steps)


def shift_space(space: SearchSpace, shifts: Mapping[str, float], train_steps: int | None = None) -> SearchSpace:
    """Move ranges by these shares of their width on their own scale, within their natural bounds."""
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
