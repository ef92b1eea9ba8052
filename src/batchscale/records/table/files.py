"""The columnar table: Parquet files that answer a query by reading only what it needs.

Owns the layout of a table, its manifest, and opening it as ``Records``. docs/archive.md describes the schema for
readers without batchscale. A table is a cache: it can always be made again from its source.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.errors import RecordsError, SpecError, one_line
from batchscale.records.frames import STUDY_SCHEMA, TRIAL_SCHEMA, WORKLOAD_COLUMNS, Records
from batchscale.records.metadata.base import NewerFormatError
from batchscale.records.metadata.columns import METADATA
from batchscale.records.table.upgrade import upgrade_studies, upgrade_trials
from batchscale.spec.workload_name import WorkloadName

FORMAT = "batchscale-table"
TABLE_VERSION = 2
MANIFEST = "manifest.json"
STUDIES = "studies.parquet"
TRIALS = "trials.parquet"
ORIGINALS = "originals.parquet"
MEASUREMENTS = "measurements"

ORIGINAL_SCHEMA = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "trial_id": pl.Int64,  # null: study.json
    "text": pl.String,  # of study.json or metadata.json
    "header": pl.String,  # the first line of measurements.csv
}

_MAX_FOLDER_NAME = 255


def measurements_path(workload: WorkloadName) -> Path:
    """Where a workload's measurements lie in a table: folders that name the partition as Hive does.

    >>> measurements_path(WorkloadName("mnist_subsets/mnist_6875", "simple_cnn_base", "sgd")).as_posix()
    'measurements/dataset=mnist_subsets%2Fmnist_6875/model=simple_cnn_base/optimizer=sgd/measurements.parquet'
    """
    dataset = f"dataset={workload.dataset.replace('/', '%2F')}"
    if len(dataset) > _MAX_FOLDER_NAME:
        raise RecordsError(
            f"A data set in a table has a name of at most {_MAX_FOLDER_NAME - 8} characters, group folders included. "
            f"Found {one_line(workload.dataset)}."
        )
    return Path(
        MEASUREMENTS, dataset, f"model={workload.model}", f"optimizer={workload.optimizer}", "measurements.parquet"
    )


def is_table(path: Path) -> bool:
    """Whether there is a table at the path, by its manifest."""
    try:
        return bool(json.loads((path / MANIFEST).read_bytes()).get("format") == FORMAT)
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the table at ``path``."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        version = manifest["format_version"] if manifest["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecordsError(
            f"{path / MANIFEST}: a table has a manifest ({one_line(error)}). Import its source again."
        ) from None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise RecordsError(
            f"{path / MANIFEST}: a table's format_version is a whole number from 1. Found {one_line(repr(version))}. "
            "Import its source again."
        )
    if version > TABLE_VERSION:
        raise NewerFormatError(
            f"{path / MANIFEST}: this batchscale reads tables up to format {TABLE_VERSION}. Found format {version}, "
            "written by a later one; install that version or a newer one, or import the table's source again."
        )
    return dict(manifest)


def read_table(path: Path) -> Records:
    """The records of a table. Only studies are read now; trials and measurements when a query asks for them.

    Raises:
        RecordsError: there is no table at the path, or one of its files is missing or of another schema.
    """
    version = read_manifest(path)["format_version"]
    studies, trials = path / STUDIES, path / TRIALS
    if version < 2:
        rows = upgrade_studies(open_table_file(studies, _without_facts(STUDY_SCHEMA)), str(studies)).collect()
        lazy = upgrade_trials(open_table_file(trials, _without_facts(TRIAL_SCHEMA)), str(trials))
    else:
        rows = open_table_file(studies, STUDY_SCHEMA).collect()
        lazy = open_table_file(trials, TRIAL_SCHEMA)
    return Records(rows, lazy, {name: _source(path, name) for name in _workloads(rows, path)})


def _without_facts(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kind for name, kind in schema.items() if name != METADATA}


def _workloads(studies: pl.DataFrame, path: Path) -> list[WorkloadName]:
    try:
        return [WorkloadName(*row) for row in studies.select(WORKLOAD_COLUMNS).unique().sort(WORKLOAD_COLUMNS).rows()]
    except SpecError as error:
        raise RecordsError(f"{path / STUDIES}: {error}") from None


def _source(path: Path, workload: WorkloadName) -> Callable[[], pl.LazyFrame]:
    file = path / measurements_path(workload)
    return lambda: open_table_file(file, {"batch_size": pl.Int64, "trial_id": pl.Int64, "step": pl.Int64})


def open_table_file(file: Path, schema: Any) -> pl.LazyFrame:
    """One Parquet file of a table, with at least the columns of the schema."""
    try:
        frame = pl.scan_parquet(file, hive_partitioning=False, glob=False)
        found = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RecordsError(
            f"{file}: the table's file cannot be read ({one_line(error)}). Import the source again."
        ) from None
    wrong = [name for name, kind in schema.items() if found.get(name) != kind]
    if wrong:
        raise RecordsError(
            f"{file}: the table's columns are as documented. Found {one_line(wrong)} missing or changed."
        )
    return frame
