"""Records as frames: what analysis, figures and report read, whatever the records are stored in.

One object, three frames with declared schemas. A tree, a table and an archive all become this.
"""

import functools
from collections.abc import Callable, Iterable, Mapping

import polars as pl

from batchscale.records.facts.columns import FACTS, STUDY_FACTS, TRIAL_FACTS
from batchscale.records.kept import KeptFrames
from batchscale.records.model import Status
from batchscale.records.precision import widen_metrics
from batchscale.spec.workload_name import WorkloadName

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
    FACTS: pl.Struct(STUDY_FACTS),  # our own facts; null: none
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
    FACTS: pl.Struct(TRIAL_FACTS),  # our own facts; null: none
    "extra": pl.String,  # every other key of metadata.json, as a JSON object
}
# behind these columns: one Float64 column per metaparameter, null where a trial has none of that name

MEASUREMENT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,
    "step": pl.Int64,
}
# behind these columns: one float column per `split/metric`


class Records:
    """Studies, trials and measurements of one or more workloads.

    Studies are small and loaded; trials are loaded when first asked for, and only those selected. Measurements are
    read when a query asks for them, one lazy frame per workload, sorted by batch size, trial id and step; metrics
    differ between workloads.

    ``sources`` give a workload's measurements as they are stored, with every trial: the fastest frame to filter, its
    metrics possibly in float32. ``measurements_of`` has the selected trials, in float64. Records never change: what
    was selected or worked out once is given again. ``kept`` has what depends on this selection, ``sources_kept`` what
    depends on the measurements alone and serves every selection.
    """

    def __init__(
        self,
        studies: pl.DataFrame,
        trials: pl.DataFrame | pl.LazyFrame,
        sources: Mapping[WorkloadName, Callable[[], pl.LazyFrame]],
        sources_kept: KeptFrames | None = None,
    ) -> None:
        self.studies = studies
        self.sources = sources
        self.kept = KeptFrames()
        self.sources_kept = sources_kept or KeptFrames()
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
        """The measurements of the workload's studies and trials that are still selected."""
        frame = self.sources[workload]()
        here = _is_workload(workload.dataset, workload.model, workload.optimizer)
        selected = self._trials.lazy().filter(here).select("batch_size", "trial_id")
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
        """The records of these workloads, batch sizes and (for trials) statuses only."""
        if dataset is not None and model is not None and optimizer is not None:
            chosen = self._workload(dataset, model, optimizer)
            return chosen.filter(batch_size=batch_size, status=status)
        studies, trials = self.studies, self._trials
        for column, wanted in (("dataset", dataset), ("model", model), ("optimizer", optimizer)):
            if wanted is not None:
                studies, trials = studies.filter(pl.col(column) == wanted), trials.filter(pl.col(column) == wanted)
        if batch_size is not None:
            sizes = [batch_size] if isinstance(batch_size, int) else list(batch_size)
            here = pl.col("batch_size").is_in(sizes)
            studies, trials = studies.filter(here), trials.filter(here)
        if status is not None:
            trials = trials.filter(pl.col("status").is_in([status] if isinstance(status, str) else list(status)))
        if studies is self.studies and trials is self._trials:
            return self
        return Records(studies, trials, self.sources, self.sources_kept)

    def workload(self, name: WorkloadName) -> "Records":
        """The records of one workload."""
        return self._workload(name.dataset, name.model, name.optimizer)

    def _workload(self, dataset: str, model: str, optimizer: str) -> "Records":
        if (dataset, model, optimizer) not in self._workloads:
            here = _is_workload(dataset, model, optimizer)
            chosen = Records(self.studies.filter(here), self._trials.filter(here), self.sources, self.sources_kept)
            self._workloads[dataset, model, optimizer] = chosen
        return self._workloads[dataset, model, optimizer]

    def first_trials(self, count: int) -> "Records":
        """The first ``count`` COMPLETE trials of each study by trial id, as the published notebook selects them."""
        if count not in self._first:
            # The trials of one workload are few: read once, they serve every question that follows.
            trials = self.trials if len(self._names) == 1 else self._trials
            complete = trials.filter(pl.col("status") == Status.COMPLETE.value)
            rank = pl.col("trial_id").rank("ordinal").over(STUDY_COLUMNS)
            self._first[count] = Records(self.studies, complete.filter(rank <= count), self.sources, self.sources_kept)
        return self._first[count]


def _is_workload(dataset: str, model: str, optimizer: str) -> pl.Expr:
    return (pl.col("dataset") == dataset) & (pl.col("model") == model) & (pl.col("optimizer") == optimizer)
