"""Improvements: the measurements that were the best of their trial so far. Steps to result depend on nothing else.

A measurement first passes a goal where the best so far passes it, and the best so far only changes at these rows. They
are a small part of the measurements: computed once per open records, metric and direction, they give the steps of every
goal by one comparison of arrays.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from batchscale.analysis.curves import AnyArray
from batchscale.errors import AnalysisError, UnknownNameError, one_line, suggest_names
from batchscale.records.frames import MEASUREMENT_SCHEMA, Records
from batchscale.records.precision import widen_number
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

_KEYS = {"batch_size": pl.Int64, "trial_id": pl.Int64}
_ROWS_AT_ONCE = 1_000_000  # bounds the memory for any workload


@dataclass(frozen=True, eq=False)
class Improvements:
    """Rows sorted by batch size, trial id and step, in which every trial's values only get better."""

    sizes: AnyArray
    trial_ids: AnyArray
    steps: AnyArray
    values: AnyArray  # float32 or float64, as stored; no NaN
    maximize: bool

    @functools.cached_property
    def _starts(self) -> AnyArray:
        """The first row of every trial."""
        changed = (np.diff(self.sizes) != 0) | (np.diff(self.trial_ids) != 0)
        return np.flatnonzero(np.concatenate((np.ones(min(len(self.sizes), 1), bool), changed)))

    def first_steps(self, goal: Goal) -> AnyArray:
        """Return every trial's first step beyond the goal, of any status; -1 for none, and once more at the end."""
        first = np.full(len(self._starts) + 1, -1)
        if len(self._starts):
            passed = self._passed(goal)
            counts = np.add.reduceat(passed, self._starts, dtype=np.intp)
            ends = np.append(self._starts[1:], len(passed))
            reached = np.flatnonzero(counts)
            first[reached] = self.steps[(ends - counts)[reached]]  # those that pass are the last ones of a trial
        return first

    def best_values(self) -> AnyArray:
        """Return the best value of every trial, negated if larger is better; infinite once more at the end."""
        ends = np.append(self._starts[1:], len(self.values)) - 1 if len(self._starts) else self._starts
        best = self.values[ends].astype(np.float64)
        return np.append(-best if self.maximize else best, np.inf)

    def places(self, trials: pl.DataFrame) -> AnyArray:
        """Return the index of each row's trial in ``first_steps`` and ``best_values``; the last one if it has none.

        Rows are identified by ``batch_size`` and ``trial_id``.
        """
        sizes, ids = (column[self._starts].tolist() for column in (self.sizes, self.trial_ids))
        indexed = pl.DataFrame({"batch_size": sizes, "trial_id": ids}, schema=_KEYS)
        joined = trials.select("batch_size", "trial_id").join(
            indexed.with_row_index("place"), on=["batch_size", "trial_id"], how="left", maintain_order="left"
        )
        return joined["place"].fill_null(indexed.height).to_numpy()

    def _passed(self, goal: Goal) -> AnyArray:
        if self.values.dtype != np.float32:
            return self.values > goal.value if self.maximize else self.values < goal.value
        # A float32 column holds numbers of six digits. Compared in its own precision it gives what its texts would
        # give, and only a value that rounds to the same float32 as the goal needs its digits.
        with np.errstate(over="ignore"):
            limit = np.float32(goal.value)
        tie = widen_number(limit)
        if self.maximize:
            return self.values >= limit if tie > goal.value else self.values > limit
        return self.values <= limit if tie < goal.value else self.values < limit


def find_improvements(records: Records, workload: WorkloadName, metric: str, maximize: bool) -> Improvements:
    """Return the improvements of a metric over all trials of a workload, cached with the records.

    Raises:
        UnknownNameError: The workload was not measured by this metric.
    """

    def find() -> Improvements:
        frame = records.sources[workload]()
        check_metric(frame, metric, workload)
        parts = [_improving(part, maximize) for part in _pieces(frame, metric)]
        if len(parts) > 1:
            parts = [_improving(_Rows(*map(np.concatenate, zip(*parts, strict=True))), maximize)]
        return Improvements(*parts[0], maximize)

    return records.sources_cache.get(("improvements", workload, metric, maximize), find)


def check_metric(frame: pl.LazyFrame, metric: str, workload: WorkloadName) -> pl.DataType:
    """Return the type of a metric's column.

    Raises:
        UnknownNameError: The workload was not measured by this metric.
        AnalysisError: No trial has been measured yet.
    """
    schema = frame.collect_schema()
    if metric not in schema or metric in MEASUREMENT_SCHEMA:
        metrics = [name for name in schema if name not in MEASUREMENT_SCHEMA]
        if not metrics:
            raise AnalysisError(f"{workload} has no measured trial yet, so '{one_line(metric)}' has no values.")
        raise UnknownNameError(
            f"The metric must be one that {workload} was measured by. Found '{one_line(metric)}'; "
            f"{suggest_names(metric, metrics)}"
        )
    return schema[metric]


class _Rows(NamedTuple):
    """Columns of measurements. Arrays from here on: making a series of one loads the masked arrays of NumPy."""

    sizes: AnyArray
    ids: AnyArray
    steps: AnyArray
    values: AnyArray


def _pieces(frame: pl.LazyFrame, metric: str) -> Iterator[_Rows]:
    value = pl.col(metric).alias("value")
    columns = frame.select("batch_size", "trial_id", "step", value)
    rows = frame.select(pl.len()).collect().item()
    for start in range(0, max(rows, 1), _ROWS_AT_ONCE):
        piece = columns.slice(start, _ROWS_AT_ONCE) if rows > _ROWS_AT_ONCE else columns
        sound = piece.filter(pl.col("value").is_not_nan()).collect()  # which leaves out null as well
        yield _Rows(*(column.to_numpy() for column in sound.get_columns()))


def _improving(rows: _Rows, maximize: bool) -> _Rows:
    """Return the rows that are better than every earlier one of their trial."""
    if not _is_sorted(rows.sizes, rows.ids, rows.steps):
        order = np.lexsort((rows.steps, rows.ids, rows.sizes))
        rows = _Rows(*(column[order] for column in rows))
    sizes, ids, _, values = rows
    trial = np.cumsum((np.diff(sizes, prepend=sizes[:1]) != 0) | (np.diff(ids, prepend=ids[:1]) != 0))
    rank = _ranks(-values if maximize else values)
    # A later trial's keys are all smaller than those of an earlier one: one running minimum serves all trials.
    key = (-trial.astype(np.int64) << 32) + rank
    best = np.minimum.accumulate(key)
    better = np.concatenate((np.ones(min(len(key), 1), bool), best[1:] < best[:-1]))
    return _Rows(*(column[better] for column in rows))


def _is_sorted(sizes: AnyArray, ids: AnyArray, steps: AnyArray) -> bool:
    size, trial, step = np.diff(sizes), np.diff(ids), np.diff(steps)
    return bool(((size > 0) | ((size == 0) & ((trial > 0) | ((trial == 0) & (step >= 0))))).all())


def _ranks(values: AnyArray) -> AnyArray:
    """Return whole numbers below 2³² in the order of the values."""
    if values.dtype == np.float32:
        bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # + 0 makes -0 the equal of 0
        return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) + 2**31
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
