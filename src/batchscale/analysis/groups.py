"""Outcomes in groups of equal keys, counted and searched as arrays.

A frame of outcomes has hundreds of rows, where a query of Polars costs a hundred times what the sums do; a question
that is asked again for every goal is answered in numpy.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import AnyArray
from batchscale.analysis.outcomes import Outcome

_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Groups:
    """Outcomes whose rows with equal keys stand together, each group from its start."""

    rows: pl.DataFrame
    keys: list[str]
    starts: AnyArray

    def count(self, column: str, value: str) -> AnyArray:
        """How many rows of each group have that value."""
        return self._reduce(np.add, (self.rows[column] == str(value)).to_numpy())

    def winners(self) -> tuple[AnyArray, AnyArray]:
        """The row with the fewest steps to the goal, then the lowest trial id, of each group; and whether one is."""
        best = (self.rows["outcome"] == Outcome.REACHED.value).to_numpy()
        lengths = np.diff(self.starts, append=len(best))
        for column in ("steps_to_goal", "trial_id"):
            values = np.full(len(best), _MOST)
            values[best] = self.rows[column].to_numpy()[best]
            best = best & (values == np.repeat(self._reduce(np.minimum, values), lengths))
        rows = np.flatnonzero(best)
        group = np.searchsorted(self.starts, rows, side="right") - 1
        winners, there = self.starts.copy(), np.zeros(len(self.starts), bool)
        winners[group[::-1]], there[group] = rows[::-1], True
        return winners, there

    def _reduce(self, operation: np.ufunc, values: AnyArray) -> AnyArray:
        if not len(self.starts):
            return np.zeros(0, np.int64)
        return np.asarray(operation.reduceat(values, self.starts, dtype=np.int64))


def group_outcomes(outcomes: pl.DataFrame, keys: list[str]) -> Groups:
    """The groups of equal keys; sorted by them if equal ones do not stand together."""
    starts = _starts(outcomes, keys)
    heads = [outcomes[name][starts.tolist()].to_list() for name in keys]
    if len(set(zip(*heads, strict=True))) < len(starts):
        outcomes = outcomes.sort(keys, maintain_order=True)
        starts = _starts(outcomes, keys)
    return Groups(outcomes, keys, starts)


def _starts(frame: pl.DataFrame, keys: list[str]) -> AnyArray:
    """The rows in which any key differs from the row before."""
    changed = np.ones(frame.height, bool)
    if frame.height:
        changed[1:] = False
    for name in keys:
        column = frame[name]
        if column.null_count():
            here = column.is_null().to_numpy()
            changed[1:] |= here[1:] != here[:-1]
        same = column.slice(1) == column.slice(0, max(len(column) - 1, 0))  # null where either is
        changed[1:] |= (~same).fill_null(False).to_numpy() if same.null_count() else ~same.to_numpy()
    return np.flatnonzero(changed)
