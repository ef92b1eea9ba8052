"""How B_crit moves with the number of trials: the same trials, had fewer of them been run."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from batchscale.analysis.intervals import StudyPoint
from batchscale.analysis.robustness import mean_best
from batchscale.analysis.scaling import fit_scaling
from batchscale.errors import AnalysisError

SHARES = (4, 2)  # a quarter and a half of the trials
FEWEST_TRIALS = 3


def critical_drift(points: Sequence[StudyPoint]) -> tuple[tuple[int, float], ...]:
    """(trials, B_crit) for a quarter, a half and all of each study's trials; nothing where any of them has no fit.

    The steps to result of fewer trials are the exact geometric mean over all their subsets. Studies that seldom reach
    the goal with so few trials, as in a race, have no such mean, and then nothing can be said.
    """
    if len({point.finishers.trials for point in points}) != 1:
        return ()
    total = points[0].finishers.trials
    if total // SHARES[0] < FEWEST_TRIALS:
        return ()
    found = []
    for count in (*(total // share for share in SHARES), total):
        steps = [mean_best(np.sort(point.finishers.steps), total, count) for point in points]
        if any(one is None for one in steps):
            return ()
        curve = pl.DataFrame({"batch_size": [point.batch_size for point in points], "steps": steps})
        try:
            found.append((count, fit_scaling(curve).b_crit))
        except AnalysisError:
            return ()
    return tuple(found)
