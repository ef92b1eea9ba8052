"""The columnar table: Parquet files that answer a query by reading only the parts that it needs.

Owns the layout of a table, its manifest, and opening it as ``Records``. docs/archive.md describes the schema for
readers without batchscale. A table is a cache: it can always be made again from its source.

Two kinds of older tables are read as today's. A table of format 1 has our own metadata in the column ``extra``, as
JSON. A table written before a field of our metadata was added lacks it: the field is null. Adding an optional field
therefore needs no new format version.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.errors import RecordsError, SpecError, one_line
from batchscale.records.frames import MEASUREMENT_SCHEMA, STUDY_SCHEMA, TRIAL_SCHEMA, WORKLOAD_COLUMNS, Records
from batchscale.records.metadata.base import OWN_KEY, NewerFormatError
from batchscale.records.metadata.columns import (
    METADATA,
    STUDY_METADATA,
    TRIAL_METADATA,
    study_metadata_row,
    trial_metadata_row,
)
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import TrialMetadata
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
    """Return the path of a workload's measurements in a table: folders that name the partition as Hive does.

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
    """True if there is a table at the path, by its manifest."""
    try:
        return bool(json.loads((path / MANIFEST).read_bytes()).get("format") == FORMAT)
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the table at ``path``."""
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
    """Return the records of a table. Only studies are read now; trials and measurements when a query needs them.

    Raises:
        RecordsError: there is no table at the path, or one of its files is missing or of another schema.
    """
    version = read_manifest(path)["format_version"]
    studies, trials = path / STUDIES, path / TRIALS
    if version < 2:
        rows = _read_format_1(studies, STUDY_SCHEMA, STUDY_METADATA, _study_row).collect()
        lazy = _read_format_1(trials, TRIAL_SCHEMA, TRIAL_METADATA, _trial_row)
    else:
        rows = open_table_file(studies, STUDY_SCHEMA).collect()
        lazy = open_table_file(trials, TRIAL_SCHEMA)
    return Records(rows, lazy, {name: _source(path, name) for name in _workloads(rows, path)})


def open_table_file(file: Path, schema: Mapping[str, Any]) -> pl.LazyFrame:
    """Open one Parquet file of a table, with at least the columns of the schema.

    A struct column may lack fields, which are null then, and may have more, which are left out.
    """
    try:
        frame = pl.scan_parquet(file, hive_partitioning=False, glob=False)
        stored = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RecordsError(
            f"{file}: the table's file cannot be read ({one_line(error)}). Import the source again."
        ) from None
    wrong = [name for name, kind in schema.items() if not _fits(stored.get(name), kind)]
    if wrong:
        raise RecordsError(
            f"{file}: the table's columns are as documented. Found {one_line(wrong)} missing or changed."
        )
    return frame.with_columns(
        _conform(name, stored[name], kind) for name, kind in schema.items() if stored[name] != kind
    )


def _fits(stored: pl.DataType | None, kind: Any) -> bool:
    """True if a stored column has this type, or is a struct whose common fields have the types of this struct's."""
    if isinstance(stored, pl.Struct) and isinstance(kind, pl.Struct):
        types = {field.name: field.dtype for field in kind.fields}
        return all(types.get(field.name, field.dtype) == field.dtype for field in stored.fields)
    return bool(stored == kind)


def _conform(name: str, stored: pl.DataType, kind: Any) -> pl.Expr:
    """Return a struct column with exactly the fields of its type today."""
    assert isinstance(stored, pl.Struct)
    names = {field.name for field in stored.fields}
    column = pl.col(name)
    fields = [
        column.struct.field(field.name) if field.name in names else pl.lit(None, field.dtype).alias(field.name)
        for field in kind.fields
    ]
    return pl.when(column.is_not_null()).then(pl.struct(fields)).alias(name)


def _workloads(studies: pl.DataFrame, path: Path) -> list[WorkloadName]:
    try:
        return [WorkloadName(*row) for row in studies.select(WORKLOAD_COLUMNS).unique().sort(WORKLOAD_COLUMNS).rows()]
    except SpecError as error:
        raise RecordsError(f"{path / STUDIES}: {error}") from None


def _source(path: Path, workload: WorkloadName) -> Callable[[], pl.LazyFrame]:
    file = path / measurements_path(workload)
    return lambda: open_table_file(file, MEASUREMENT_SCHEMA)


def _study_row(data: object, where: str) -> dict[str, Any] | None:
    return study_metadata_row(StudyMetadata.from_json(data, where))


def _trial_row(data: object, where: str) -> dict[str, Any] | None:
    return trial_metadata_row(TrialMetadata.from_json(data, where))


def _read_format_1(
    file: Path,
    schema: Mapping[str, Any],
    metadata: Mapping[str, pl.DataType],
    read: Callable[[object, str], dict[str, Any] | None],
) -> pl.LazyFrame:
    """Open a file of format 1 and move our own metadata from ``extra`` to its column; only selected rows are parsed."""
    frame = open_table_file(file, {name: kind for name, kind in schema.items() if name != METADATA})
    kind = pl.Struct(metadata)

    def rows(extras: pl.Series) -> pl.Series:
        objects = [_parse_extra(text, file) for text in extras]
        return pl.Series([read(data[OWN_KEY], str(file)) if OWN_KEY in data else None for data in objects], dtype=kind)

    def others(extras: pl.Series) -> pl.Series:
        return pl.Series([_without_own(text, file) for text in extras], dtype=pl.String)

    extra = pl.col("extra")
    names = [name for column in frame.collect_schema() for name in ([METADATA] * (column == "extra") + [column])]
    return frame.with_columns(
        extra.map_batches(rows, return_dtype=kind, is_elementwise=True).alias(METADATA),
        extra.map_batches(others, return_dtype=pl.String, is_elementwise=True),
    ).select(names)


def _without_own(text: str | None, file: Path) -> str | None:
    data = _parse_extra(text, file)
    if OWN_KEY not in data:
        return text
    return json.dumps({key: value for key, value in data.items() if key != OWN_KEY}, sort_keys=True)


def _parse_extra(text: str | None, file: Path) -> dict[str, Any]:
    if text is None or text == "{}":
        return {}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise RecordsError(f"{file}: the column extra has JSON objects. Import the source again.")
    return data
