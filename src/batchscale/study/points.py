"""The metaparameters and the seed of a trial: pure functions of the study, its search and its place in it."""

from dataclasses import dataclass

from batchscale.search.points import draw_points
from batchscale.spec.experiment import Algorithm
from batchscale.spec.plan import Study, derive_seed
from batchscale.spec.space import SearchSpace


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
        """The searched metaparameters of points ``start`` to ``start + count - 1``, counted from 0."""
        seed = self.study.seed if self.search == 1 else derive_seed(self.study.seed, "search", self.search)
        return draw_points(self.space, seed, start, count, self.algorithm)


def trial_seed(study: Study, search: int, point: int) -> int:
    """The seed of a trial's initial parameters, data order and dropout."""
    return derive_seed(study.seed, "trial", search, point)
