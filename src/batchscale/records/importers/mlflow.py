"""Runs of MLflow: its SQLite store, the default since 3.7, and older ``mlruns`` folders."""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.records.importers.source import (
    STEP,
    ImportedValue,
    Importer,
    ReadOptions,
    RunSeries,
    RunSource,
    SourceRun,
    to_number,
    to_value,
)
from batchscale.records.importers.sqlite import is_sqlite, open_database
from batchscale.records.importers.text_lines import require_size
from batchscale.records.model import Status

DATABASE = "mlflow.db"
META = "meta.yaml"
MAX_SMALL_BYTES = 2**20
MAX_METRIC_BYTES = 2**30
LARGEST = 1.7976931348623157e308
"""MLflow stores infinities as the largest number."""

_TABLES = {"experiments", "runs", "params", "metrics", "latest_metrics", "tags"}
_STATUSES: Mapping[str, tuple[Status, str | None]] = {
    "FINISHED": (Status.COMPLETE, None),
    "FAILED": (Status.INCOMPLETE, "failed"),
    "KILLED": (Status.INCOMPLETE, "killed"),
    "RUNNING": (Status.INCOMPLETE, "running"),
    "SCHEDULED": (Status.INCOMPLETE, "scheduled"),
}
_STATUS_NUMBERS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}


def _matches(path: Path) -> bool:
    if path.is_dir():
        return (path / DATABASE).is_file() or next(_run_folders(path), None) is not None
    if not is_sqlite(path):
        return False
    with open_database(path) as database:
        return database.tables >= _TABLES


def _read(path: Path, _options: ReadOptions) -> RunSource:
    if path.is_dir() and (path / DATABASE).is_file():
        path = path / DATABASE
    runs = list(_read_folders(path)) if path.is_dir() else _read_database(path)
    return RunSource("mlflow", path, runs, STEP)


def _make_run(
    run_id: str, name: str, experiment: str, status: str, values: Mapping[str, ImportedValue], series: RunSeries
) -> SourceRun:
    known, reason = _STATUSES.get(status, (None, None))
    failure = f"MLflow recorded the run as {status}." if known is Status.INCOMPLETE else None
    return SourceRun(
        run_id, values, series.frame, name=name, group=experiment, status=known, stop_reason=reason, failure=failure
    )


def _finite_or_infinite(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= LARGEST else value


# --- SQLite --------------------------------------------------------------------------------------------------------


def _read_database(path: Path) -> list[SourceRun]:
    """Return the runs that are not deleted, oldest first."""
    with open_database(path) as database:
        experiments = {
            experiment_id: one_line(name)
            for experiment_id, name, stage in database.select(
                "experiments", ("experiment_id", "name", "lifecycle_stage")
            )
            if stage != "deleted"
        }
        columns = ("run_uuid", "name", "status", "lifecycle_stage", "experiment_id")
        rows = [
            row
            for row in database.select("runs", columns, 'ORDER BY "start_time", "run_uuid"')
            if row[3] != "deleted" and row[4] in experiments
        ]
        values: dict[str, dict[str, ImportedValue]] = {str(row[0]): {} for row in rows}
        series = {str(row[0]): RunSeries() for row in rows}
        for run_id, key, text in database.select("params", ("run_uuid", "key", "value")):
            if run_id in values and (value := to_value(text)) is not None:
                values[run_id][one_line(key)] = value
        points = database.select("metrics", ("run_uuid", "key", "step", "value", "is_nan"), 'ORDER BY "timestamp"')
        for run_id, key, step, number, is_nan in points:
            if run_id in series and isinstance(step, int) and isinstance(number, int | float):
                series[run_id].add(one_line(key), step, math.nan if is_nan else _finite_or_infinite(float(number)))
    return [
        _make_run(
            str(run_id), one_line(name or ""), experiments[experiment], str(status), values[run_id], series[run_id]
        )
        for run_id, name, status, _, experiment in rows
    ]


# --- mlruns --------------------------------------------------------------------------------------------------------


def _run_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs in ``mlruns``, in one of its experiments, or the run's folder itself."""
    patterns = (f"*/*/{META}", f"*/{META}", META)
    for pattern in patterns:
        for meta in sorted(folder.glob(pattern)):
            if (meta.parent / "metrics").is_dir() and ".trash" not in meta.parts and not meta.is_symlink():
                yield meta.parent


def _read_folders(folder: Path) -> Iterator[SourceRun]:
    described = [(run, _read_meta(run / META)) for run in _run_folders(folder)]
    described.sort(key=lambda pair: (to_number(pair[1].get("start_time", "")) or 0.0, pair[0]))
    for run, meta in described:
        if meta.get("lifecycle_stage") == "deleted":
            continue
        experiment = _read_meta(run.parent / META).get("name", run.parent.name)
        status = _STATUS_NUMBERS.get(meta.get("status", ""), meta.get("status", ""))
        values = {}
        for file in _files(run / "params"):
            value = to_value(_read_small(file))
            if value is not None:
                values[_key(file, run / "params")] = value
        series = RunSeries()
        for file in _files(run / "metrics"):
            _read_metric(file, _key(file, run / "metrics"), series)
        name = meta.get("run_name", "")
        yield _make_run(meta.get("run_id", run.name), name, experiment, status, values, series)


def _files(folder: Path) -> list[Path]:
    files = []
    for where, _, names in os.walk(folder, followlinks=False):
        files += [Path(where) / name for name in names if not (Path(where) / name).is_symlink()]
    return sorted(files)


def _key(file: Path, folder: Path) -> str:
    return one_line(file.relative_to(folder).as_posix())


def _read_metric(file: Path, name: str, series: RunSeries) -> None:
    """Add the lines of a metric's file: time stamp, value, step, and further words in later versions."""
    require_size(file, MAX_METRIC_BYTES)
    points = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            words = line.decode("utf-8", "replace").split()
            stamp, value = (to_number(word) for word in (*words[:2], "", "")[:2])
            step = to_number(words[2]) if len(words) > 2 else 0.0
            if stamp is None or value is None or step is None:
                if not line.endswith(b"\n"):
                    break  # cut off
                raise RecordsError(
                    f"{one_line(file, 300)}, line {number}: must be a time stamp, a value and a step. Found "
                    f"{one_line(line, 60)}."
                )
            points.append((stamp, step, value))
    for _, step, value in sorted(points, key=lambda point: point[0]):
        series.add(name, step, value)


def _read_meta(path: Path) -> dict[str, str]:
    """Return the plain ``key: value`` lines of a ``meta.yaml``: MLflow writes no others that matter here."""
    if not path.is_file():
        return {}
    lines = (line.partition(": ") for line in _read_small(path).splitlines() if line[:1].isalpha())
    return {key: one_line(value.strip().strip("'\"")) for key, _, value in lines}


def _read_small(path: Path) -> str:
    require_size(path, MAX_SMALL_BYTES)
    return path.read_bytes().decode("utf-8", "replace")


IMPORTER = Importer("mlflow", "MLflow (SQLite store, mlruns folder)", _matches, _read)
