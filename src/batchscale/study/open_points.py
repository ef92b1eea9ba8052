"""Which points of a search must be known further, kept in order while something is learned of them."""

from bisect import bisect_left
from collections.abc import Sequence

from batchscale.study.knowledge import Knowledge
from batchscale.study.search_rules import SearchRules


class OpenPoints:
    """The points that are open with a finish, growing. Another finish makes them anew, news of a point moves that one.

    ``points`` is the search's own list of what is known.
    """

    def __init__(self, points: Sequence[Knowledge]) -> None:
        self._points = points
        self._open: list[int] = []
        self._finish = -1  # the finish that they are open with; -1: to be made from all points

    def forget(self) -> None:
        """Anything may have changed."""
        self._finish = -1

    def file(self, point: int, rules: SearchRules) -> None:
        """Something was learned of a point."""
        if self._finish < 0:
            return
        place = bisect_left(self._open, point)
        there = place < len(self._open) and self._open[place] == point
        wanted = rules.is_open(self._points[point], self._finish)
        if wanted and not there:
            self._open.insert(place, point)
        elif there and not wanted:
            del self._open[place]

    def until(self, finish: int, rules: SearchRules) -> list[int]:
        """Those that are open with this finish; a view that must not be changed."""
        if finish != self._finish:
            self._open = [index for index, point in enumerate(self._points) if rules.is_open(point, finish)]
            self._finish = finish
        return self._open
