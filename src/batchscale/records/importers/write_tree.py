"""Write the runs of a source as a records tree: one study per workload and batch size, in the published layout."""

import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from batchscale import __version__
from batchscale.errors import RecordsError, one_line
from batchscale.formatting import count_text
from batchscale.records.durable import FileSystem, storing, sync_path, sync_tree
from batchscale.records.importers.mapping import NameMapping
from batchscale.records.importers.names import COUNTER_NAMES, is_step_name, plain_name
from batchscale.records.importers.source import RunSource, SourceRun
from batchscale.records.metadata.study import StudyMetadata, TrainerMetadata
from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.model import MAX_WHOLE, Status, StudyRecord, TrialRecord, is_parameter_name
from batchscale.records.tree.layout import WORKING_FOLDER
from batchscale.records.tree.measurements import Measurement
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.writer import StudyWriter
from batchscale.spec.durations import Unit
from batchscale.spec.space import MAX_METAPARAMETERS, ParameterConfig, ParameterType, SearchSpace
from batchscale.spec.workload_name import WorkloadName

IMPORTED = "imported"
"""The key of a trial's metadata that names its run in the source."""


@dataclass(frozen=True)
class ImportedStudy:
    """One study of an import. ``train_steps`` is the longest trial's number of steps."""

    workload: WorkloadName
    batch_size: int
    trials: int
    train_steps: int


@dataclass(frozen=True)
class ImportedTree:
    """The content of a tree made from a source, what the source lacks, and what was left out."""

    studies: tuple[ImportedStudy, ...]
    trials: dict[str, int]
    measurements: int
    parameters: tuple[str, ...]
    missing: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class _Trial:
    record: TrialRecord
    rows: list[Measurement]


class _Unsynced(FileSystem):
    """Files that are made durable together at the end: a sync for each of thousands would take hours."""

    def fsync(self, handle: int) -> None:
        pass

    def fdatasync(self, handle: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


def check_target(tree: Path) -> None:
    """Refuse a place where something is, or that lies in no folder."""
    if tree.exists() or tree.is_symlink():
        raise RecordsError(f"--out must name a new folder: {one_line(tree, 300)} exists. Choose another name.")
    if not tree.absolute().parent.is_dir():
        raise RecordsError(f"--out must lie in a folder that exists. Make {one_line(tree.parent, 300)} first.")


def write_tree(source: RunSource, mapping: NameMapping, tree: Path | None) -> ImportedTree:
    """Write the tree, which appears whole; without a path only check and count.

    Raises:
        RecordsError: no run can be imported, or ``tree`` exists.
        StorageError: the file system refuses.
    """
    converter = _Converter(source, mapping)
    if tree is None:
        studies = tuple(converter.convert_study(key, runs, None) for key, runs in converter.studies.items())
        return converter.summary(studies)
    check_target(tree)
    staging = tree.absolute().parent / f".{tree.absolute().name}.partial"
    shutil.rmtree(staging, ignore_errors=True)
    with storing("the import", tree):
        try:
            staging.mkdir()
            studies = tuple(converter.convert_study(key, runs, staging) for key, runs in converter.studies.items())
            summary = converter.summary(studies)
            shutil.rmtree(staging / WORKING_FOLDER)
            sync_tree(staging)
            os.rename(staging, tree)  # noqa: PTH104  (fails where something appeared meanwhile)
            sync_path(tree.absolute().parent)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return summary


class _Converter:
    """Turns runs into trials and counts them."""

    def __init__(self, source: RunSource, mapping: NameMapping) -> None:
        self._source, self._mapping = source, mapping
        self._statuses: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._measurements = 0
        self._num_guessed_statuses = self._num_seeds = self._num_dropped = 0
        self.studies: dict[tuple[WorkloadName, int], list[SourceRun]] = {}
        for run in source.runs:
            workload, batch_size = mapping.workload_of(run), mapping.batch_size_of(run)
            if batch_size is None:
                self._left_out[f"lack a whole batch size in '{mapping.batch_size}'"] += 1
            elif workload is None:
                self._left_out["lack a value of the workload's name"] += 1
            else:
                self.studies.setdefault((workload, batch_size), []).append(run)
        self.studies = dict(sorted(self.studies.items()))
        self._parameters = self._find_parameters()

    def _find_parameters(self) -> tuple[str, ...]:
        """Return the metaparameters: those that were searched, or else the numbers in which runs differ."""
        mapping = self._mapping
        if mapping.parameters:
            return mapping.parameters
        runs = [run for runs in self.studies.values() for run in runs]
        taken = {mapping.batch_size, mapping.seed}
        searched = {name for run in runs for name in run.configs} - taken
        numbers: dict[str, set[float]] = {}
        for run in runs:
            for name, value in run.values.items():
                if isinstance(value, float):
                    numbers.setdefault(name, set()).add(value)
        varied = {name for name, values in numbers.items() if len(values) > 1 and not is_step_name(name)}
        varied = {name for name in varied if plain_name(name) not in COUNTER_NAMES}
        names = searched or varied - taken
        names = {name for name in names if is_parameter_name(str(name))}
        if len(names) > MAX_METAPARAMETERS:
            raise RecordsError(
                f"A trial must have at most {MAX_METAPARAMETERS} metaparameters. Found {len(names):,} numbers that "
                "differ between runs. Name the metaparameters with --parameter, once for each."
            )
        return tuple(sorted(map(str, names)))

    def _fixed(self, runs: Sequence[SourceRun]) -> dict[str, float]:
        """Return the numbers that all runs of a study have in common, besides its metaparameters."""
        skipped = {*self._parameters, self._mapping.batch_size, self._mapping.seed}
        first = {name: v for name, v in runs[0].values.items() if isinstance(v, float) and name not in skipped}
        same = {name: v for name, v in first.items() if all(run.values.get(name) == v for run in runs)}
        return dict(sorted((name, v) for name, v in same.items() if is_parameter_name(name))[:MAX_METAPARAMETERS])

    def convert_study(self, key: tuple[WorkloadName, int], runs: list[SourceRun], tree: Path | None) -> ImportedStudy:
        """Convert the runs of a study, and write them if there is a tree."""
        workload, batch_size = key
        metadata = StudyMetadata(
            code_version=__version__,
            goal=None if self._mapping.goal is None else str(self._mapping.goal),
            fixed=self._fixed(runs),
            num_train_examples=self._mapping.num_train_examples,
            trainer=TrainerMetadata(self._source.kind),
        )
        record = StudyRecord(workload, batch_size, 0, True, SearchSpace(), metadata)
        writer: StudyWriter | None = None
        lengths: list[int] = []
        short = False
        trials = []
        try:
            for trial in self._convert_runs(runs, batch_size):
                lengths.append(trial.record.steps)
                trials.append(trial.record)
                if tree is not None:
                    writer = writer or open_study(tree, record, fs=_Unsynced())
                    writer.commit(trial.record, trial.rows)
            budget = max(lengths, default=0)
            short = any(each.status is Status.COMPLETE and each.steps < budget for each in trials)
            if writer is not None:
                space = _join_spaces(runs, trials, self._parameters)
                writer.update(replace(record, train_steps=budget, early_stopping=short, space=space))
        finally:
            if writer is not None:
                writer.close()
        return ImportedStudy(workload, batch_size, len(lengths), budget)

    def _convert_runs(self, runs: Sequence[SourceRun], batch_size: int) -> Iterator[_Trial]:
        trial_id = 0
        for run in runs:
            trial = self._convert_run(run, trial_id + 1, batch_size)
            if trial is not None:
                trial_id += 1
                self._statuses[trial.record.status.value] += 1
                self._measurements += len(trial.rows)
                yield trial

    def _convert_run(self, run: SourceRun, trial_id: int, batch_size: int) -> _Trial | None:
        mapping = self._mapping
        frame = self._rows(run, batch_size)
        if mapping.metric not in frame.columns or not frame[mapping.metric].drop_nulls().len():
            self._left_out[f"have no measurement of {mapping.metric}"] += 1
            return None
        values = frame.select("step", mapping.metric).drop_nulls()
        diverged = values.filter(~pl.col(mapping.metric).is_finite())
        steps = int(frame["step"][-1])
        status = run.status or Status.COMPLETE
        self._num_guessed_statuses += run.status is None
        ended_diverged = not math.isfinite(values[mapping.metric][-1])
        if ended_diverged:
            status = Status.INFEASIBLE
        seed = run.values.get(mapping.seed) if mapping.seed else None
        has_seed = isinstance(seed, float) and seed.is_integer() and 0 <= seed < MAX_WHOLE
        self._num_seeds += has_seed
        metadata = TrialMetadata(
            seed=int(seed) if has_seed else None,  # type: ignore[arg-type]
            stop_reason="diverged" if ended_diverged else run.stop_reason,
            diverged_at=int(diverged["step"][0]) if status is Status.INFEASIBLE and diverged.height else None,
            failure=run.failure if status is Status.INCOMPLETE else None,
            other={IMPORTED: self._origin(run)},
            **self._goal_values(values),
        )
        parameters = {name: run.values[name] for name in self._parameters if isinstance(run.values.get(name), float)}
        record = TrialRecord(trial_id, status, steps, parameters, metadata)  # type: ignore[arg-type]
        names = [name for name in frame.columns if name != "step"]
        rows = [Measurement(int(row[0]), dict(zip(names, row[1:], strict=True))) for row in frame.iter_rows()]
        return _Trial(record, rows)

    def _origin(self, run: SourceRun) -> dict[str, Any]:
        texts = {name: value for name, value in run.values.items() if isinstance(value, str)}
        origin = {"source": self._source.kind, "run": run.run_id, "name": run.name, "group": run.group, "values": texts}
        return {key: value for key, value in origin.items() if value}

    def _goal_values(self, values: pl.DataFrame) -> dict[str, Any]:
        goal = self._mapping.goal
        if goal is None:
            return {}
        numbers = values[goal.metric]
        reached = values.filter(numbers > goal.value if goal.maximize else numbers < goal.value)
        reached = reached.filter(~pl.col(goal.metric).is_nan())
        finite = numbers.filter(numbers.is_finite())
        best = None if not len(finite) else float(-finite.max() if goal.maximize else finite.min())  # type: ignore[operator,arg-type]
        return {"reached_at": int(reached["step"][0]) if reached.height else None, "best": best}

    def _rows(self, run: SourceRun, batch_size: int) -> pl.DataFrame:
        """Return one row per step, in growing order, with the metrics under their names in records."""
        mapping = self._mapping
        frame = run.read()
        if mapping.step not in frame.columns:
            return pl.DataFrame({"step": []})
        metrics = [name for name in frame.columns if name in mapping.metrics]
        amount = pl.col(mapping.step)
        if mapping.unit is Unit.EPOCHS:
            assert mapping.num_train_examples is not None
            ratio = mapping.num_train_examples / batch_size
            steps_per_epoch = max(1, math.floor(ratio) if mapping.drop_last else math.ceil(ratio))
            steps = ((amount + (1 - mapping.first_epoch)) * steps_per_epoch).round()
        elif mapping.unit is Unit.EXAMPLES:
            steps = (amount / batch_size).ceil()
        else:
            steps = amount
        frame = frame.select(steps.alias(" step"), *(pl.col(name).alias(mapping.metrics[name]) for name in metrics))
        step = pl.col(" step")
        valid = frame.filter(step.is_finite() & (step >= 0) & (step <= MAX_WHOLE) & (step == step.floor()))
        valid = valid.filter(pl.any_horizontal(pl.exclude(" step").is_not_null()) if metrics else pl.lit(False))
        self._num_dropped += frame.filter(step.is_not_null()).height - valid.height if metrics else 0
        merged = valid.group_by(" step").agg(pl.exclude(" step").drop_nulls().last()).sort(" step")
        return merged.select(step.cast(pl.Int64).alias("step"), pl.exclude(" step"))

    def summary(self, studies: tuple[ImportedStudy, ...]) -> ImportedTree:
        """Return the counts of everything that was converted."""
        total = sum(self._statuses.values())
        reasons = [f"{count_text(count, 'run')} left out: they {reason}." for reason, count in self._left_out.items()]
        if not total:
            raise RecordsError(
                f"{one_line(self._source.path, 300)}: at least one run must be imported. Found "
                f"{len(self._source.runs):,} runs, all left out. {' '.join(reasons)}"
            )
        if self._measurements == total:
            raise RecordsError(
                f"{one_line(self._source.path, 300)}: steps to result need several measurements during training. Found "
                "one in every run, as in a table of final results. Import the histories of the runs instead."
            )
        missing = ["The step budget is not in the source: a study's is that of its longest trial."]
        if not self._num_seeds:
            missing.append("Seeds are not in the source.")
        elif self._num_seeds < total:
            missing.append(f"Seeds are missing in {total - self._num_seeds:,} of {total:,} trials.")
        if self._num_guessed_statuses:
            missing.append(
                "Statuses are not in the source: a run counts as COMPLETE, or INFEASIBLE if it ended in NaN."
            )
        if not any(run.configs for run in self._source.runs):
            missing.append("Search spaces are not in the source: best trials at an edge cannot be found.")
        if self._mapping.goal is None:
            missing.append(f"The goal is not in the source: pass --goal '{self._mapping.metric} < VALUE' to analyze.")
        if self._num_dropped:
            reasons.append(f"{self._num_dropped:,} rows without a whole step from 0 or without a metric are left out.")
        kept = tuple(study for study in studies if study.trials)
        return ImportedTree(
            kept,
            dict(sorted(self._statuses.items())),
            self._measurements,
            self._parameters,
            tuple(missing),
            tuple(reasons),
        )


def _join_spaces(runs: Sequence[SourceRun], trials: Sequence[TrialRecord], names: Sequence[str]) -> SearchSpace:
    """Return the ranges that hold all values of a study; a metaparameter that some trial lacks has none."""
    configs = []
    for name in names:
        ranges = [run.configs[name] for run in runs if name in run.configs]
        joined = _join_configs(ranges) if ranges else None
        values = [trial.parameters.get(name) for trial in trials]
        if joined is not None and all(value is not None and joined.contains(value) for value in values):
            configs.append(joined)
    return SearchSpace(tuple(configs))


def _join_configs(ranges: Sequence[ParameterConfig]) -> ParameterConfig | None:
    first = ranges[0]
    if any((other.type, other.scale) != (first.type, first.scale) for other in ranges):
        return None
    if first.type is ParameterType.DISCRETE:
        points = tuple(dict.fromkeys(point for config in ranges for point in config.feasible_points))
        return replace(first, feasible_points=points)
    low, high = min(config.min_value for config in ranges), max(config.max_value for config in ranges)
    return replace(first, min_value=low, max_value=high)
