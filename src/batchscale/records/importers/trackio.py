"""Projects of trackio: one SQLite file each, with a JSON object per row of metrics and per run's config."""

from collections.abc import Iterator
from pathlib import Path

from batchscale.errors import one_line
from batchscale.records.importers.source import (
    STEP,
    ImportedValue,
    Importer,
    ReadOptions,
    RunSeries,
    RunSource,
    SourceRun,
    flatten,
    to_number,
)
from batchscale.records.importers.sqlite import ReadOnlyDatabase, is_sqlite, open_database
from batchscale.spec.untrusted_text import parse_json


def _matches(path: Path) -> bool:
    if not is_sqlite(path):
        return False
    with open_database(path) as database:
        return {"metrics", "configs"} <= database.tables and "run_name" in database.columns("metrics")


def _read(path: Path, _options: ReadOptions) -> RunSource:
    series: dict[str, RunSeries] = {}
    names: dict[str, str] = {}
    damaged = 0
    with open_database(path) as database:
        key = "run_id" if "run_id" in database.columns("metrics") else "run_name"
        for run_id, name, step, text in database.select(
            "metrics", (key, "run_name", "step", "metrics"), 'ORDER BY "id"'
        ):
            run = one_line(run_id or name)
            names[run] = one_line(name)
            metrics = _parse_object(text)
            damaged += metrics is None
            for metric, value in _numbers(metrics or {}):
                series.setdefault(run, RunSeries()).add(metric, step if isinstance(step, int) else -1, value)
        values = dict(_read_configs(database))
    runs = [SourceRun(run, values.get(run, {}), points.frame, name=names[run]) for run, points in series.items()]
    notices = (f"{damaged:,} rows are no JSON objects and left out.",) if damaged else ()
    return RunSource("trackio", path, runs, STEP, notices=notices)


def _read_configs(database: ReadOnlyDatabase) -> Iterator[tuple[str, dict[str, ImportedValue]]]:
    key = "run_id" if "run_id" in database.columns("configs") else "run_name"
    for run_id, text in database.select("configs", (key, "config")):
        config = _parse_object(text) or {}
        own = {name: value for name, value in config.items() if not name.startswith("_")}
        yield one_line(run_id), flatten(own)


def _parse_object(text: object) -> dict[str, object] | None:
    try:
        value = parse_json(text) if isinstance(text, str | bytes) else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _numbers(metrics: dict[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a row, those of nested objects under names with a slash."""
    for name, value in metrics.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _numbers(value, f"{path}/")
        elif (number := to_number(value)) is not None:
            yield one_line(path), number


IMPORTER = Importer("trackio", "trackio (SQLite)", _matches, _read)
