"""The decision after a search: is the study finished, or is it searched again, and in which space?

The paper repeats a search with a new space when the best trial lies near a boundary (section 4). We also search again
when no trial reached the goal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from batchscale.search.edge_guard import Edge, RankedTrial, find_edges, goal_score, propose_space, shift_space
from batchscale.search.points import to_unit
from batchscale.spec.space import ParameterType, SearchSpace

BEST_SHARE = 0.1
BEST_AT_LEAST = 3
SMALLEST_SHIFT = 0.05
FARTHEST_SHIFT = 1.0  # widths that the range of a new batch size moves at most
MIDDLE = (0.25, 0.75)  # of a range: a neighbour's winner there leaves it where it is


@dataclass(frozen=True)
class TrialResult:
    """A recorded trial, as far as the next search depends on it.

    ``best`` is smaller when better, whatever the goal's direction.
    """

    trial_id: int
    parameters: Mapping[str, float]
    reached_at: int | None
    best: float
    diverged: bool = False


@dataclass(frozen=True)
class NextSearch:
    """The space to search next and the reason; without a reason the study is finished."""

    reason: str | None
    edges: tuple[Edge, ...] = ()
    space: SearchSpace | None = None


def plan_next_search(
    results: Sequence[TrialResult], spaces: Sequence[SearchSpace], margin: float, train_steps: int
) -> NextSearch:
    """Decide about a study after its searches in ``spaces`` (oldest first), from all their recorded trials.

    ``results`` holds no failed trials; diverged ones limit how far a range is usable.
    """
    if not any(result.reached_at is not None for result in results):
        space = centre_space(spaces[-1], results, train_steps)
        return NextSearch("no trial reached the goal", space=space)
    ranked = [
        RankedTrial(result.parameters, goal_score(result.reached_at, result.best, diverged=result.diverged))
        for result in results
    ]
    edges = find_edges(spaces, ranked, margin, train_steps)
    if not edges:
        return NextSearch(None)
    names = ", ".join(f"{edge.parameter} ({edge.side})" for edge in edges)
    space = propose_space(spaces[-1], edges, train_steps)
    return NextSearch(f"the best trial lies at the edge of {names}", edges, space)


def centre_space(space: SearchSpace, results: Sequence[TrialResult], train_steps: int | None = None) -> SearchSpace:
    """Return the space of the same widths around the best trials: the median of the best tenth, at least three.

    Where the best already lie in the middle the range stays: another search there still samples new points.
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


def neighbours_space(
    space: SearchSpace, winners: Mapping[int, Mapping[str, float]], batch_size: int, train_steps: int | None = None
) -> SearchSpace:
    """Return the space for a new batch size: moved so that the values of its neighbours' winners lie well inside.

    Between two measured sizes the expected value is interpolated in log batch size, on the range's own scale; beyond
    them it is that of the nearest. A range moves only as far as that value needs to lie in its middle half. Its width
    stays: in a narrower space the same number of trials would find fewer steps than at the other sizes.

    Args:
        space: The space of the experiment file.
        winners: The metaparameters of the best trial by measured batch size.
        batch_size: The new one.
        train_steps: Its step budget.
    """
    smaller = max((size for size in winners if size < batch_size), default=None)
    larger = min((size for size in winners if size > batch_size), default=None)
    shifts = {}
    for config in space:
        if config.type is ParameterType.DISCRETE or config.min_value == config.max_value:
            continue
        units = {
            size: to_unit(config, winners[size].get(config.name, math.nan))
            for size in (smaller, larger)
            if size is not None
        }
        sizes = [size for size, unit in units.items() if math.isfinite(unit)]
        if not sizes:
            continue
        share = 0.0
        if len(sizes) == 2:
            share = math.log(batch_size / sizes[0]) / math.log(sizes[1] / sizes[0])
        expected = (1 - share) * units[sizes[0]] + share * units[sizes[-1]]
        shift = expected - min(max(expected, MIDDLE[0]), MIDDLE[1])
        if abs(shift) >= SMALLEST_SHIFT:
            shifts[config.name] = min(max(shift, -FARTHEST_SHIFT), FARTHEST_SHIFT)
    return shift_space(space, shifts, train_steps)
