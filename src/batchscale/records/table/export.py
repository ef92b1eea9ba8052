"""Write a table back as a records tree, in the published layout.

``study.json`` and ``metadata.json`` come out as they went in, byte for byte; the numbers of ``measurements.csv`` in the
shortest text that reads back as the same number. Importing the tree again gives the same table.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.durable import storing, sync_path
from batchscale.records.frames import STUDY_COLUMNS
from batchscale.records.metadata.columns import METADATA
from batchscale.records.precision import widen_metrics
from batchscale.records.table.files import ORIGINAL_SCHEMA, ORIGINALS, open_table_file, read_table
from batchscale.records.tree.layout import MEASUREMENTS_FILE, TRIAL_FILE, StudyPaths
from batchscale.records.tree.measurements import Measurement, csv_text, measurements_checksum
from batchscale.spec.workload_name import WorkloadName

_CHECKSUM = pl.col(METADATA).struct.field("measurements_sha256").alias("sha256")


@dataclass(frozen=True)
class ExportSummary:
    """The size of an exported tree."""

    tree: Path
    studies: int
    trials: int
    measurements: int


def export_records(table: Path, tree: Path, on_progress: Callable[[float], None] = lambda _: None) -> ExportSummary:
    """Write a tree from a table; it appears whole.

    Raises:
        RecordsError: there is no table, or ``tree`` exists already.
    """
    records = read_table(table)
    originals = open_table_file(table / ORIGINALS, ORIGINAL_SCHEMA)
    _check_target(tree)
    staging = tree.absolute().parent / f".{tree.absolute().name}.partial"
    shutil.rmtree(staging, ignore_errors=True)
    studies = records.studies.select(STUDY_COLUMNS).rows()
    recorded = records.trials.select(*STUDY_COLUMNS, "trial_id", _CHECKSUM).drop_nulls("sha256")
    checksums = recorded.partition_by(STUDY_COLUMNS, as_dict=True, include_key=False)
    no_checksums = recorded.clear().select("trial_id", "sha256")
    trials = rows = 0
    with storing("the export", tree):
        try:
            for number, study in enumerate(studies):
                workload, size = WorkloadName(*study[:3]), study[3]
                texts = originals.filter(_is_study(workload, size)).collect()
                measurements = records.sources[workload]().filter(pl.col("batch_size") == size).collect()
                texts = texts.join(checksums.get(study, no_checksums), on="trial_id", how="left")
                _write_study(StudyPaths.of(staging, workload, size), texts, measurements)
                trials, rows = trials + texts.height - 1, rows + measurements.height
                on_progress((number + 1) / len(studies))
            os.sync()  # once for all: a sync per file would take hours
            staging.replace(tree)
            sync_path(tree.absolute().parent)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return ExportSummary(tree, len(studies), trials, rows)


def _check_target(tree: Path) -> None:
    if tree.exists() or tree.is_symlink():
        raise RecordsError(f"{tree}: a tree is exported to a place where nothing is yet. Choose another place.")
    if not tree.absolute().parent.is_dir():
        raise RecordsError(f"{tree}: a tree is exported to a folder that exists. Make {tree.parent} first.")


def _is_study(workload: WorkloadName, size: int) -> pl.Expr:
    return (
        (pl.col("dataset") == workload.dataset)
        & (pl.col("model") == workload.model)
        & (pl.col("optimizer") == workload.optimizer)
        & (pl.col("batch_size") == size)
    )


def _write_study(paths: StudyPaths, texts: pl.DataFrame, measurements: pl.DataFrame) -> None:
    paths.folder.mkdir(parents=True)
    trials = texts.filter(pl.col("trial_id").is_not_null())
    studies = texts.filter(pl.col("trial_id").is_null())
    if studies.height != 1:
        raise RecordsError(f"{one_line(paths.folder)}: a study of a table has its text once. Import the source again.")
    paths.study_file.write_bytes(studies["text"].item().encode())
    for trial_id, text in trials.select("trial_id", "text").rows():
        paths.trial(trial_id).mkdir()
        (paths.trial(trial_id) / TRIAL_FILE).write_bytes(text.encode())
    for (header,), group in trials.group_by("header"):
        ids = group.select("trial_id")
        rows = measurements.join(ids, on="trial_id", how="semi", maintain_order="left")
        checksums = dict(group.select("trial_id", "sha256").drop_nulls().rows())
        for trial_id, data in csv_texts(rows, str(header), ids["trial_id"].to_list()).items():
            if trial_id in checksums and measurements_checksum(data) != checksums[trial_id]:
                data = _as_written(rows.filter(pl.col("trial_id") == trial_id), str(header))
            (paths.trial(trial_id) / MEASUREMENTS_FILE).write_bytes(data)


def _as_written(rows: pl.DataFrame, header: str) -> bytes:
    """Return the bytes that our own writer made of these rows: the checksum in ``metadata.json`` is theirs."""
    metrics = header.split(",")[1:]
    frame = widen_metrics(rows.lazy().select("step", *metrics)).collect()
    return csv_text(Measurement(row["step"], {name: row[name] for name in metrics}) for row in frame.to_dicts())


def csv_texts(measurements: pl.DataFrame, header: str, trial_ids: list[int]) -> dict[int, bytes]:
    """Return the bytes of each trial's ``measurements.csv``; the rows of a trial stand together."""
    first = header.encode() + b"\n"
    texts = dict.fromkeys(trial_ids, first)
    if not measurements.height:
        return texts
    body = measurements.select(header.split(",")).write_csv(include_header=False, quote_style="never").encode()
    body = body.replace(b"NaN", b"nan")
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == ord("\n")) + 1
    runs = measurements["trial_id"].rle().struct.unnest()
    stops = ends[np.cumsum(runs["len"].to_numpy()) - 1].tolist()
    for trial_id, start, stop in zip(runs["value"].to_list(), [0, *stops], stops, strict=False):
        texts[trial_id] = first + body[start:stop]
    return texts
