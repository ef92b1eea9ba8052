"""The robustness of a minimum over trials: the result of fewer trials, and whether more would improve it.

The paper names this as missing from it (section 5.1). Everything here is exact, without replacement and without a
model: order statistics of the trials that were run.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import StudyPoint
from batchscale.analysis.outcomes import Outcome
from batchscale.analysis.scaling import fit_scaling
from batchscale.errors import AnalysisError
from batchscale.records.frames import STUDY_COLUMNS
from batchscale.records.model import Status

GAIN = 0.1  # a point "still moves" if half the trials would on average have been this share worse
SURE = 0.95  # or if half the trials would have missed the goal more often than in the rest
FEWEST_REACHED = 3  # and if fewer trials than this reached the goal, it may always move

BEST_OF_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "goal": pl.String,
    "n": pl.Int64,  # trials, out of those that were run
    "reach_probability": pl.Float64,  # that at least one of the n reaches the goal
    "low": pl.Float64,  # 5 % quantile of the steps to result; null: not reached
    "median": pl.Float64,
    "high": pl.Float64,  # 95 % quantile
}

STABILITY_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "goal": pl.String,
    "half_steps": pl.Float64,  # geometric mean steps to result of half as many trials; null: they often reach nothing
    "still_moves": pl.Boolean,
    "stability": pl.String,  # the same as text
}

DRIFT_SHARES = (4, 2)  # a quarter and a half of the trials
FEWEST_DRIFT_TRIALS = 3

_QUANTILES = (0.05, 0.5, 0.95)


def best_of_n(outcomes: pl.DataFrame, counts: Iterable[int] | None = None) -> pl.DataFrame:
    """Return the distribution of steps to result had only n of a study's COMPLETE trials been run, against n.

    With t(1) <= t(2) <= … the N trials' steps (not reached: infinite), P(min = t(i)) = C(N-i, n-1) / C(N, n).

    Args:
        outcomes: A frame of ``trial_outcomes``.
        counts: The numbers n; by default 1, 2, 5, 10, … up to N, and N.
    """
    rows = []
    for key, values in _by_study(outcomes):
        total = len(values)
        numbers = _default_counts(total) if counts is None else sorted({n for n in counts if 1 <= n <= total})
        for n in numbers:
            reached, ends = _best_of(values, n)
            rows.append((*key, n, reached, *ends))
    return pl.DataFrame(rows, schema=BEST_OF_SCHEMA, orient="row")


def best_of_probabilities(total: int, n: int) -> Array:
    """Return P(min = t(i)), i = 1…total, over all subsets of n trials.

    >>> best_of_probabilities(4, 2).round(4).tolist()
    [0.5, 0.3333, 0.1667, 0.0]
    """
    if not 1 <= n <= total:
        raise AnalysisError(f"Best of n needs 1 <= n <= {total}, the number of trials. Found {n}.")
    survive = np.array([_survival(total, n, i) for i in range(total + 1)])
    return np.asarray(survive[:-1] - survive[1:])


def point_stability(outcomes: pl.DataFrame, studies: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return for every study if more trials would likely still move its point.

    They would if half as many trials would on (geometric) average have needed more than 10 % more steps, or would have
    missed the goal in more than 5 % of cases, or if fewer than three trials reached the goal: what doubling the search
    to this size has brought, doubling it again may bring. (The median would not do: a random half holds the winner
    every other time.)

    With ``studies`` (of the records), a trial that early stopping or a race ended counts as reaching the goal
    after the slowest finisher.
    """
    stopped = set() if studies is None else set(studies.filter("early_stopping").select(STUDY_COLUMNS).rows())
    rows: list[tuple[object, ...]] = []
    for key, values in _by_study(outcomes):
        reached = int(np.isfinite(values).sum())
        if reached == 0:
            rows.append((*key, None, True, "no trial reached the goal"))
            continue
        steps = values[:reached]
        if key[:4] in stopped:
            steps = np.append(steps, np.full(len(values) - reached, steps[-1]))
        half = mean_best(steps, len(values), max(len(values) // 2, 1))
        moves = reached < FEWEST_REACHED or half is None or half > (1 + GAIN) * max(values[0], 1.0)
        text = "more trials would likely still move this point" if moves else "more trials would hardly move this point"
        rows.append((*key, half, moves, text))
    return pl.DataFrame(rows, schema=STABILITY_SCHEMA, orient="row")


def mean_best(reached: Array, total: int, n: int) -> float | None:
    """Return the geometric mean steps to result of n of the trials; None where they would miss the goal too often.

    Args:
        reached: Steps of the trials that reached the goal, growing.
        total: The number of trials.
        n: The number of them to count.
    """
    chance = best_of_probabilities(total, n)[: len(reached)]
    if chance.sum() < SURE:
        return None
    return math.exp(float((chance * np.log(np.maximum(reached, 1.0))).sum() / chance.sum()))


def critical_drift(points: Sequence[StudyPoint]) -> tuple[tuple[int, float], ...]:
    """Return (trials, B_crit) for a quarter, a half and all of each study's trials; empty if any of them has no fit.

    The steps to result of fewer trials are the exact geometric mean over all their subsets. Studies that seldom reach
    the goal with so few trials, as in a race, have no such mean; the result is empty then.
    """
    if len({point.finishers.trials for point in points}) != 1:
        return ()
    total = points[0].finishers.trials
    if total // DRIFT_SHARES[0] < FEWEST_DRIFT_TRIALS:
        return ()
    drift: list[tuple[int, float]] = []
    for count in (*(total // share for share in DRIFT_SHARES), total):
        steps = [mean_best(np.sort(point.finishers.steps), total, count) for point in points]
        if None in steps:
            return ()
        curve = pl.DataFrame({"batch_size": [point.batch_size for point in points], "steps": steps})
        try:
            b_crit = fit_scaling(curve).b_crit
        except AnalysisError:
            return ()
        if b_crit is None:
            return ()
        drift.append((count, b_crit))
    return tuple(drift)


def _by_study(outcomes: pl.DataFrame) -> Iterable[tuple[tuple[object, ...], Array]]:
    complete = outcomes.filter(pl.col("status") == Status.COMPLETE.value)
    steps = pl.when(pl.col("outcome") == Outcome.REACHED.value).then(pl.col("steps_to_goal")).cast(pl.Float64)
    groups = complete.select(*STUDY_COLUMNS, "goal", steps.fill_null(math.inf).alias("steps"))
    for key, group in groups.group_by(*STUDY_COLUMNS, "goal", maintain_order=True):
        yield key, np.sort(group["steps"].to_numpy())


def _default_counts(total: int) -> Sequence[int]:
    series = [m * 10**e for e in range(7) for m in (1, 2, 5)]
    return [*(n for n in series if n < total), total]


def _best_of(values: Array, n: int) -> tuple[float, list[float | None]]:
    chance = best_of_probabilities(len(values), n).cumsum()
    reached = int(np.isfinite(values).sum())
    ends = []
    for quantile in _QUANTILES:
        at = int(np.searchsorted(chance, quantile - 1e-12))
        ends.append(float(values[at]) if at < reached else None)
    return (float(chance[reached - 1]) if reached else 0.0), ends


def _survival(total: int, n: int, i: int) -> float:
    """P(min > t(i)) = C(N-i, n) / C(N, n)."""
    if total - i < n:
        return 0.0
    return math.exp(
        math.lgamma(total - i + 1)
        + math.lgamma(total - n + 1)
        - math.lgamma(total - i - n + 1)
        - math.lgamma(total + 1)
    )
