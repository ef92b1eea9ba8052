"""What has become of the points of a search, counted."""

from collections.abc import Sequence
from dataclasses import dataclass

from batchscale.study.knowledge import Knowledge


@dataclass(frozen=True)
class Tally:
    """How many points reached the goal, and the earliest step; how many diverged and are not recorded; their steps."""

    reached: int
    earliest_goal: int | None
    diverging: int
    steps: int
    front: int | None


def tally_points(points: Sequence[Knowledge]) -> Tally:
    """The tally of these points."""
    reached = [point.reached_at for point in points if point.reached_at is not None]
    steps = [point.step for point in points]
    return Tally(
        len(reached),
        min(reached, default=None),
        sum(point.diverged_at is not None and point.recorded is None for point in points),
        sum(step for step in steps if step > 0),
        max(steps, default=None),
    )
