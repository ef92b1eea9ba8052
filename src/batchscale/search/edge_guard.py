"""The edge guard: at which ends of its search space does the best trial of a study leave something to be found?

The paper repeats a search when the optimal trial lies near a boundary (section 4). How near is near depends on how
densely the space was sampled: the best of six trials is far from an end that the best of a hundred would touch. And a
metaparameter that hardly matters leaves its best trial anywhere, also near an end: only where the trials get better
towards an end is there a reason to look beyond it. ``benchmarks/edge_guard.py`` measures both kinds of mistakes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from batchscale.search.edges import Edge, Side, edge_distances
from batchscale.search.units import to_unit
from batchscale.spec.space import SearchSpace

DEFAULT_MARGIN = 0.05

_SPACINGS = 2.0  # the best of n trials stands for everything within this many mean distances between them
_WIDEST = 0.3  # but no end is nearer than that, however few trials there are
_WIDE_MARGINS = 3.0  # so far from an end counts too where the last third of the range clearly gets better towards it
_LAST_SHARE = 1 / 3
_TREND = 1.5  # the t value of a rank correlation from which on trials count as better towards an end
_FEWEST = 4  # trials without the best one, below which there is no telling


@dataclass(frozen=True)
class RankedTrial:
    """A trial as the guard sees it: its metaparameters and its score, smaller is better, infinite if it diverged."""

    values: Mapping[str, float]
    score: tuple[float, ...]


def goal_score(reached_at: int | None, best: float, *, diverged: bool = False) -> tuple[float, ...]:
    """Trials that reached the goal by their steps, then the others by their best value, then the diverged ones.

    ``best`` is smaller when better, whatever the goal's direction.
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
    """The ends that the best trial lies at, nearest first; none with a margin of 0.

    Args:
        spaces: the spaces of a study's searches. What one of them covered is no edge, whichever the trial is from.
        trials: all trials of these searches, diverged ones too, by id: of equally good ones the first is the best.
        margin: how near an end is near in a densely sampled space, as a share of the range.
        train_steps: the step budget, beyond which nothing counted in steps can go.
    """
    if not trials or margin <= 0:
        return ()
    ordered = sorted(trials, key=lambda trial: trial.score)
    ranked = list(zip(ordered, _ranks(ordered), strict=True))
    ends = far_ends(spaces, ordered[0].values, train_steps)
    return tuple(edge for edge, space in ends if not edge.natural and _is_open(edge, space, ranked, margin))


def _ranks(ordered: Sequence[RankedTrial]) -> list[float]:
    """The places in the order, equally good trials sharing the mean of theirs."""
    ranks: list[float] = []
    for _, group in groupby(ordered, key=lambda trial: trial.score):
        count = len(list(group))
        ranks += [len(ranks) + (count - 1) / 2] * count
    return ranks


def far_ends(
    spaces: Sequence[SearchSpace], values: Mapping[str, float], train_steps: int | None = None
) -> list[tuple[Edge, SearchSpace]]:
    """Both ends of every range with the space that reaches furthest beyond the trial there, nearest first."""
    ends: dict[tuple[str, Side], tuple[Edge, SearchSpace]] = {}
    for space in spaces:
        for edge in edge_distances(space, values, train_steps):
            known = ends.get((edge.parameter, edge.side))
            if known is None or edge.distance > known[0].distance:
                ends[edge.parameter, edge.side] = (edge, space)
    return sorted(ends.values(), key=lambda end: end[0].distance)


def _is_open(edge: Edge, space: SearchSpace, ranked: Sequence[tuple[RankedTrial, float]], margin: float) -> bool:
    if edge.distance >= max(_WIDE_MARGINS * margin, _WIDEST):
        return False  # by none of the rules below
    points = [(_nearness(edge, space, trial), rank) for trial, rank in ranked]
    inside = [point for point in points if 0 <= point[0] <= 1]
    others = [point for point in points[1:] if 0 <= point[0] <= 1]  # that the best trial is good proves nothing
    if len(others) < _FEWEST:
        return edge.distance < margin
    spacing = _SPACINGS / (len(inside) + 1)
    if edge.distance < max(margin, min(_WIDEST, spacing)) and _trend(others) > _TREND:
        return True
    last = [point for point in others if point[0] >= 1 - _LAST_SHARE]
    return edge.distance < _WIDE_MARGINS * margin and len(last) >= _FEWEST and _trend(last) > _TREND


def _nearness(edge: Edge, space: SearchSpace, trial: RankedTrial) -> float:
    """Where a trial lies in the space along the edge's metaparameter: 1 at the edge, 0 at the other end."""
    unit = to_unit(space[edge.parameter], trial.values.get(edge.parameter, math.nan))
    return unit if edge.side is Side.HIGH else 1 - unit


def _trend(points: Sequence[tuple[float, float]]) -> float:
    """The t value of the correlation between nearness and (negative) rank: positive where trials get better.

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
