"""The points of the search that trains: which trial each is, its metaparameters and its seed."""

from collections.abc import Sequence

from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Study
from batchscale.spec.space import SearchSpace
from batchscale.study.ledger import Ledger
from batchscale.study.points import PointStream, trial_seed
from batchscale.study.search_state import SearchState

DRAWN_AT_ONCE = 64
"""At least so many points are drawn together: one by one would take far longer."""


class DrawnPoints:
    """The points of one search of a study. ``search`` is its number, from 1."""

    def __init__(self, study: Study, experiment: Experiment, ledger: Ledger, search: int) -> None:
        self._study = study
        self._experiment = experiment
        self._ledger = ledger
        self._search = search
        self._values: dict[int, dict[str, float]] = {}

    @property
    def space(self) -> SearchSpace:
        """The space that they are drawn from."""
        return self._ledger.searches[self._search - 1].space

    def trial_id(self, point: int) -> int | None:
        """The id of a point; None if the search's range of ids is used up."""
        return self._ledger.trial_id(self._search, point)

    def add_range(self, point: int, trial_id: int) -> None:
        """Let the search, after a later one, go on at this point in a further range of ids."""
        self._ledger.extend(self._search, point, trial_id)

    def values(self, point: int) -> dict[str, float]:
        """The searched metaparameters of a point."""
        if point not in self._values:
            stream = PointStream(self._study, self._search, self.space, self._experiment.search.algorithm)
            count = max(DRAWN_AT_ONCE, self._study.trials)
            start = point - point % count
            self._values |= dict(enumerate(stream.draw(start, count), start))
        return self._values[point]

    def seed(self, point: int) -> int:
        """The seed of a point."""
        return trial_seed(self._study, self._search, point)

    def let_go(self, point: int) -> None:
        """A point is recorded: what was drawn for it is not kept."""
        self._values.pop(point, None)


def next_trial_id(ledger: Ledger, searches: Sequence[SearchState]) -> int:
    """The first id that no trial of the study has."""
    counts = [(number, len(search.points)) for number, search in enumerate(searches, 1)]
    ids = [ledger.trial_id(number, count - 1) or 0 for number, count in counts if count]
    return max([0, *ids]) + 1
