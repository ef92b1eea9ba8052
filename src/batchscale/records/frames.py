"""Records as three frames with declared schemas: studies, trials and measurements.

Analysis, figures and report read this one object, made from a tree, a table or an archive.
"""

import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

import polars as pl

from batchscale.records.metadata.columns import METADATA, STUDY_METADATA, TRIAL_METADATA
from batchscale.records.model import Status
from batchscale.records.precision import widen_metrics
from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName

Value = TypeVar("Value")

StudyKey = tuple[str, str, str, int]
"""The values of ``STUDY_COLUMNS``."""

WORKLOAD_COLUMNS = ("dataset", "model", "optimizer")
STUDY_COLUMNS = (*WORKLOAD_COLUMNS, "batch_size")

STUDY_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "train_steps": pl.Int64,
    "early_stopping": pl.Boolean,
    "parameter_configs": pl.String,  # the JSON object of study.json
    METADATA: pl.Struct(STUDY_METADATA),  # our own metadata; null: none
    "extra": pl.String,  # every other key of study.json, as a JSON object
}

TRIAL_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "status": pl.String,
    "steps": pl.Int64,
    METADATA: pl.Struct(TRIAL_METADATA),  # our own metadata; null: none
    "extra": pl.String,  # every other key of metadata.json, as a JSON object
}
# behind these columns: one Float64 column per metaparameter, null where a trial has none of that name

MEASUREMENT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "step": pl.Int64,
}
# behind these columns: one float column per `split/metric`


class FrameCache:
    """Values computed from measurements, by key: the ``size`` that were used last. Safe for threads."""

    def __init__(self, size: int = 64) -> None:  # a value takes about a megabyte at the size of the published workloads
        self._size = size
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the cached value for the key, made now if there is none.

        >>> cache = FrameCache()
        >>> cache.get("a", lambda: 1), cache.get("a", lambda: 2)
        (1, 1)
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                cached: Value = self._values[key]
                return cached
        value = make()
        with self._lock:
            self._values[key] = value
            if len(self._values) > self._size:
                self._values.popitem(last=False)
        return value


class Records:
    """Studies, trials and measurements of one or more workloads. Records never change.

    Studies are small and loaded. Trials are loaded on first use, and only those selected. Measurements are read by
    queries, one lazy frame per workload, sorted by batch size, trial id and step; metrics differ between workloads.

    ``sources`` give a workload's measurements as they are stored, with every trial: the fastest frame to filter, its
    metrics possibly in float32. ``measurements_of`` has the selected trials, in float64. ``cache`` is for values that
    depend on this selection, ``sources_cache`` for values that depend on the measurements alone: every selection of the
    same records shares it. ``notices`` name everything damaged that was met so far, also while measurements were read;
    they are shared too.
    """

    def __init__(
        self,
        studies: pl.DataFrame,
        trials: pl.DataFrame | pl.LazyFrame,
        sources: Mapping[WorkloadName, Callable[[], pl.LazyFrame]],
        sources_cache: FrameCache | None = None,
        notices: list[str] | None = None,
    ) -> None:
        self.studies = studies
        self.notices: list[str] = [] if notices is None else notices
        self.sources = sources
        self.cache = FrameCache()
        self.sources_cache = sources_cache or FrameCache()
        self._trials = trials
        self._workloads: dict[tuple[str, str, str], Records] = {}
        self._first: dict[int, Records] = {}

    def __repr__(self) -> str:
        return f"Records({len(self.workloads)} workloads, {self.studies.height} studies)"

    @property
    def trials(self) -> pl.DataFrame:
        """The selected trials, one row each, with a column for each metaparameter."""
        if isinstance(self._trials, pl.LazyFrame):
            self._trials = self._trials.collect()
        return self._trials

    @property
    def workloads(self) -> list[WorkloadName]:
        """The workloads that have a study here, in order of their names."""
        return list(self._names)

    @functools.cached_property
    def _names(self) -> tuple[WorkloadName, ...]:
        rows = self.studies.select(WORKLOAD_COLUMNS).unique().rows()
        return tuple(sorted(WorkloadName(*row) for row in rows))

    @property
    def metaparameters(self) -> list[str]:
        """The names of the metaparameter columns of ``trials``."""
        return [name for name in self._trial_columns if name not in TRIAL_SCHEMA]

    @functools.cached_property
    def _trial_columns(self) -> tuple[str, ...]:
        return tuple(self._trials.lazy().collect_schema())

    def measurements_of(self, workload: WorkloadName) -> pl.LazyFrame:
        """Return the measurements of the workload's selected studies and trials."""
        frame = self.sources[workload]()
        is_workload = _is_workload(workload.dataset, workload.model, workload.optimizer)
        selected = self._trials.lazy().filter(is_workload).select("batch_size", "trial_id")
        return widen_metrics(frame.join(selected, on=["batch_size", "trial_id"], how="semi", maintain_order="left"))

    @property
    def measurements(self) -> pl.LazyFrame:
        """All measurements, with the workload's columns first; a metric that a workload lacks is null."""
        frames = [
            self.measurements_of(name).select(
                pl.lit(name.dataset).alias("dataset"),
                pl.lit(name.model).alias("model"),
                pl.lit(name.optimizer).alias("optimizer"),
                pl.all(),
            )
            for name in self.workloads
        ]
        if not frames:
            return pl.LazyFrame(schema={**dict.fromkeys(WORKLOAD_COLUMNS, pl.String), **MEASUREMENT_SCHEMA})
        return pl.concat(frames, how="diagonal_relaxed")

    def filter(
        self,
        *,
        dataset: str | None = None,
        model: str | None = None,
        optimizer: str | None = None,
        batch_size: int | Iterable[int] | None = None,
        status: str | Iterable[str] | None = None,
    ) -> "Records":
        """Return the records of these workloads, batch sizes and (for trials) statuses only."""
        if dataset is not None and model is not None and optimizer is not None:
            return self._workload(dataset, model, optimizer).filter(batch_size=batch_size, status=status)
        studies, trials = self.studies, self._trials
        for column, value in (("dataset", dataset), ("model", model), ("optimizer", optimizer)):
            if value is not None:
                studies, trials = studies.filter(pl.col(column) == value), trials.filter(pl.col(column) == value)
        if batch_size is not None:
            sizes = [batch_size] if isinstance(batch_size, int) else list(batch_size)
            is_selected = pl.col("batch_size").is_in(sizes)
            studies, trials = studies.filter(is_selected), trials.filter(is_selected)
        if status is not None:
            trials = trials.filter(pl.col("status").is_in([status] if isinstance(status, str) else list(status)))
        if studies is self.studies and trials is self._trials:
            return self
        return self._select(studies, trials)

    def _select(self, studies: pl.DataFrame, trials: pl.DataFrame | pl.LazyFrame) -> "Records":
        return Records(studies, trials, self.sources, self.sources_cache, self.notices)

    def workload(self, name: WorkloadName) -> "Records":
        """Return the records of one workload."""
        return self._workload(name.dataset, name.model, name.optimizer)

    def _workload(self, dataset: str, model: str, optimizer: str) -> "Records":
        if (dataset, model, optimizer) not in self._workloads:
            is_workload = _is_workload(dataset, model, optimizer)
            studies, trials = self.studies.filter(is_workload), self._trials.filter(is_workload)
            self._workloads[dataset, model, optimizer] = self._select(studies, trials)
        return self._workloads[dataset, model, optimizer]

    def first_trials(self, count: int) -> "Records":
        """Return the first ``count`` COMPLETE trials of each study by trial id, as the published notebook does."""
        if count not in self._first:
            # The trials of one workload are few: load them once for all later queries.
            trials = self.trials if len(self._names) == 1 else self._trials
            complete = trials.filter(pl.col("status") == Status.COMPLETE.value)
            rank = pl.col("trial_id").rank("ordinal").over(STUDY_COLUMNS)
            self._first[count] = self._select(self.studies, complete.filter(rank <= count))
        return self._first[count]


def _is_workload(dataset: str, model: str, optimizer: str) -> pl.Expr:
    return (pl.col("dataset") == dataset) & (pl.col("model") == model) & (pl.col("optimizer") == optimizer)


def searched_spaces(records: Records) -> dict[StudyKey, tuple[SearchSpace, ...]]:
    """Return the spaces of each study's searches, oldest first; published records have the last one only.

    Raises:
        SpecError, ValueError: one of them is no search space.
    """
    spaces = pl.col(METADATA).struct.field("spaces")
    rows = records.studies.select(*STUDY_COLUMNS, "parameter_configs", spaces).iter_rows()
    return {
        tuple(key): tuple(SearchSpace.from_json(json.loads(text)) for text in texts or [configs])
        for *key, configs, texts in rows
    }


def fixed_values(records: Records) -> dict[StudyKey, Mapping[str, float]]:
    """Return the fixed metaparameters of each study by name; empty if its metadata has none."""
    rows = records.studies.select(*STUDY_COLUMNS, pl.col(METADATA).struct.field("fixed")).iter_rows()
    return {tuple(key): dict(sorted(json.loads(text or "{}").items())) for *key, text in rows}
