"""The edge guard and the goal guard: does a study need another search, and in which space?

The paper repeats a search with a new space when the best trial lies near a boundary (section 4). We also search again
when no trial reached the goal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from batchscale.search.edge_guard import Edge, RankedTrial, find_edges, goal_score, propose_space, shift_space
from batchscale.search.units import to_unit
from batchscale.spec.space import ParameterType, SearchSpace

BEST_SHARE = 0.1
BEST_AT_LEAST = 3
SMALLEST_SHIFT = 0.05


@dataclass(frozen=True)
class TrialResult:
    """What the guards must know of a trial that came to its end.

    ``best`` is smaller when better, whatever the goal's direction.
    """

    trial_id: int
    parameters: Mapping[str, float]
    reached_at: int | None
    best: float
    diverged: bool = False


@dataclass(frozen=True)
class Judgement:
    """Whether a study is settled; if not, why and where to search next."""

    reason: str | None
    edges: tuple[Edge, ...] = ()
    next_space: SearchSpace | None = None


def judge(results: Sequence[TrialResult], spaces: Sequence[SearchSpace], margin: float, train_steps: int) -> Judgement:
    """What becomes of a study after its searches in ``spaces`` (oldest first), with all their recorded trials.

    Trials that failed say nothing and are left out; those that diverged say how far a range can be used.
    """
    if not any(result.reached_at is not None for result in results):
        space = centre_space(spaces[-1], results, train_steps)
        return Judgement("no trial reached the goal", next_space=space)
    ranked = [_ranked(result) for result in results]
    edges = find_edges(spaces, ranked, margin, train_steps)
    if not edges:
        return Judgement(None)
    where = ", ".join(f"{edge.parameter} ({edge.side})" for edge in edges)
    space = propose_space(spaces[-1], edges, train_steps)
    return Judgement(f"the best trial lies at the edge of {where}", edges, space)


def _ranked(result: TrialResult) -> RankedTrial:
    return RankedTrial(result.parameters, goal_score(result.reached_at, result.best, diverged=result.diverged))


def centre_space(space: SearchSpace, results: Sequence[TrialResult], train_steps: int | None = None) -> SearchSpace:
    """The space of the same widths around the best trials: the median of the best tenth, at least three of them.

    Where the best already lie in the middle the range stays: another search there still draws fresh points.
    """
    ranked = sorted(
        (r for r in results if math.isfinite(r.best) and not r.diverged), key=lambda r: (r.best, r.trial_id)
    )
    best = ranked[: max(BEST_AT_LEAST, math.ceil(BEST_SHARE * len(ranked)))]
    shifts = {}
    for config in space:
        if config.type is ParameterType.DISCRETE or config.min_value == config.max_value:
            continue
        units = [unit for r in best if math.isfinite(unit := to_unit(config, r.parameters.get(config.name, math.nan)))]
        shift = min(max(median(units) - 0.5, -0.5), 0.5) if units else 0.0
        if abs(shift) >= SMALLEST_SHIFT:
            shifts[config.name] = shift
    return shift_space(space, shifts, train_steps)
