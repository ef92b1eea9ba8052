"""The points of a study's searches: the metaparameters, the seed and the trial id of each.

Metaparameters and seeds are pure functions of the study, the search and the point. Trial ids are consecutive over all
searches of a study. A search that gets more trials after a later one began continues in a further range of ids, so that
its points stay the same points; ``study.json`` stores the ranges.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from batchscale.records.metadata.study import SearchMetadata
from batchscale.search.points import draw_points
from batchscale.spec.experiment import Algorithm, Experiment
from batchscale.spec.plan import Study, derive_seed
from batchscale.spec.space import SearchSpace
from batchscale.study.search import SearchState

MIN_SAMPLES = 64
"""At least so many points are sampled together: one by one would take far longer."""


@dataclass(frozen=True)
class PointStream:
    """The stream of points of one search (1 for the first) of a study.

    The first search draws from the study's own seed, so that studies of a paired design share their unit points; each
    further search has an unrelated stream.
    """

    study: Study
    search: int
    space: SearchSpace
    algorithm: Algorithm

    def draw(self, start: int, count: int) -> list[dict[str, float]]:
        """Return the searched metaparameters of points ``start`` to ``start + count - 1``, counted from 0."""
        seed = self.study.seed if self.search == 1 else derive_seed(self.study.seed, "search", self.search)
        return draw_points(self.space, seed, start, count, self.algorithm)


def trial_seed(study: Study, search: int, point: int) -> int:
    """Return the seed of a trial's initial parameters, data order and dropout."""
    return derive_seed(study.seed, "trial", search, point)


@dataclass
class SearchEntry:
    """One search: its space, the first id and the first point of each range of ids, and why it was started.

    ``confirms`` are the trials that a confirmation trains again with new seeds; empty for a search.
    """

    space: SearchSpace
    ranges: list[tuple[int, int]]
    reason: str = ""
    confirms: tuple[int, ...] = ()


@dataclass
class SearchHistory:
    """All searches of a study, oldest first, and the mapping between trial ids and points. The first is number 1."""

    searches: list[SearchEntry] = field(default_factory=list)

    def add_search(
        self, space: SearchSpace, first_trial_id: int, reason: str = "", confirms: tuple[int, ...] = ()
    ) -> None:
        """Add a search, or a confirmation of these trials, whose own trials start at this id."""
        self.searches.append(SearchEntry(space, [(first_trial_id, 0)], reason, confirms))

    @property
    def spaces(self) -> list[SearchSpace]:
        """The spaces of the searches, oldest first, without confirmations."""
        return [search.space for search in self.searches if not search.confirms]

    @property
    def confirmed(self) -> set[int]:
        """The trials that confirmations train again."""
        return {trial_id for search in self.searches for trial_id in search.confirms}

    def is_confirmation(self, trial_id: int) -> bool:
        """True if a trial is part of a confirmation."""
        return bool(self.searches[self.locate(trial_id)[0] - 1].confirms)

    def confirmed_trial(self, search: int, point: int) -> int | None:
        """Return the trial that a point of a confirmation trains again; None for a point of a search."""
        confirms = self.searches[search - 1].confirms
        return confirms[point % len(confirms)] if confirms else None

    def add_range(self, search: int, point: int, first_trial_id: int) -> None:
        """Continue a search at this point with new ids."""
        self.searches[search - 1].ranges.append((first_trial_id, point))

    def trial_id(self, search: int, point: int) -> int | None:
        """Return the id of a point; None if its search has no range for it yet."""
        ranges = self.searches[search - 1].ranges
        if len(self.searches) == len(ranges) == 1:  # the usual case, and called for every job
            return ranges[0][0] + point - ranges[0][1]
        first_id, first_point = max((r for r in ranges if r[1] <= point), key=lambda r: r[1])
        end = min((r[0] for s in self.searches for r in s.ranges if r[0] > first_id), default=None)
        trial_id = first_id + point - first_point
        return trial_id if end is None or trial_id < end else None

    def locate(self, trial_id: int) -> tuple[int, int]:
        """Return the search and the point of a trial."""
        if len(self.searches) == len(self.searches[0].ranges) == 1:
            return 1, self.searches[0].ranges[0][1] + trial_id - self.searches[0].ranges[0][0]
        ranges = [(first_id, k, point) for k, s in enumerate(self.searches, 1) for first_id, point in s.ranges]
        first_id, search, point = max(range_ for range_ in ranges if range_[0] <= trial_id)
        return search, point + trial_id - first_id

    def next_trial_id(self, searches: Sequence[SearchState]) -> int:
        """Return the first id that no trial of the study has; ``searches`` are their states, oldest first."""
        counts = [(number, len(search.points)) for number, search in enumerate(searches, 1)]
        ids = [self.trial_id(number, count - 1) or 0 for number, count in counts if count]
        return max([0, *ids]) + 1

    def to_metadata(self) -> tuple[SearchMetadata, ...]:
        """Return the searches as ``study.json`` stores them."""
        return tuple(
            SearchMetadata(search.space, tuple(search.ranges), search.reason, search.confirms or None)
            for search in self.searches
        )

    @classmethod
    def from_metadata(cls, searches: Iterable[SearchMetadata]) -> "SearchHistory":
        """Return the history that ``study.json`` stores."""
        entries = [SearchEntry(each.space, list(each.ranges), each.reason, each.confirms or ()) for each in searches]
        return cls(entries)


class SampledPoints:
    """The points of one search of a study. ``search`` is its number, from 1."""

    def __init__(self, study: Study, experiment: Experiment, history: SearchHistory, search: int) -> None:
        self._study = study
        self._experiment = experiment
        self._history = history
        self._search = search
        self._values: dict[int, dict[str, float]] = {}

    @property
    def space(self) -> SearchSpace:
        """The space that the points are sampled from."""
        return self._history.searches[self._search - 1].space

    def trial_id(self, point: int) -> int | None:
        """Return the id of a point; None if the search's range of ids is used up."""
        return self._history.trial_id(self._search, point)

    def values(self, point: int) -> dict[str, float]:
        """Return the searched metaparameters of a point."""
        if point not in self._values:
            confirmed = self.confirmed_trial(point)
            if confirmed is not None:
                search, confirmed_point = self._history.locate(confirmed)
                self._values[point] = self._stream(search).draw(confirmed_point, 1)[0]
            else:
                count = max(MIN_SAMPLES, self._study.trials)
                start = point - point % count
                self._values |= dict(enumerate(self._stream(self._search).draw(start, count), start))
        return self._values[point]

    def _stream(self, search: int) -> PointStream:
        space = self._history.searches[search - 1].space
        return PointStream(self._study, search, space, self._experiment.search.algorithm)

    def confirmed_trial(self, point: int) -> int | None:
        """Return the trial that a point of a confirmation trains again; None for a point of a search."""
        return self._history.confirmed_trial(self._search, point)

    def seed(self, point: int) -> int:
        """Return the seed of a point."""
        return trial_seed(self._study, self._search, point)

    def release(self, point: int) -> None:
        """Free the sampled values of a point that is recorded."""
        self._values.pop(point, None)
