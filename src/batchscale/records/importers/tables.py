"""CSV, Parquet and JSON-lines files with a row per measurement: of any origin, and histories exported from W&B.

One file holds many runs, told apart by a column, or a folder holds one file per run. The runs' values stand in columns
that do not change within a run, in a file ``runs.csv`` (or ``.jsonl``, ``.parquet``) of the folder, in
``NAME.config.json`` beside a run's file, or in the file's name.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

import polars as pl

from batchscale.errors import RecordsError, one_line, suggest_names
from batchscale.records.importers.names import is_chosen_name, is_measured_name
from batchscale.records.importers.source import (
    MAX_ROWS,
    ImportedValue,
    Importer,
    ReadOptions,
    RunSource,
    SourceRun,
    flatten,
    to_value,
)
from batchscale.records.importers.text_lines import read_json_lines, require_size
from batchscale.records.model import Status
from batchscale.spec.untrusted_text import parse_json

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
RUNS_NAMES = ("runs", "configs")
MAX_TABLE_BYTES = 4 * 2**30
MAX_CONFIG_BYTES = 16 * 2**20
TRIAL_NAMES = ("trial_id", "trial", "run_id", "run", "run_name", "name", "id")
STATUS_NAMES = ("status", "state")
WANDB_STEP = "_step"
_CHART_ENDS = ("__MIN", "__MAX")
_SAMPLES = frozenset({500, 1000, 1500, 2000, 2500, 3000, 5000, 10_000})
"""The numbers of rows that W&B samples a history to by default, and those that people ask for."""
_STATUSES: Mapping[str, Status] = {
    **dict.fromkeys(("complete", "completed", "finished", "done", "success", "succeeded"), Status.COMPLETE),
    **dict.fromkeys(("pruned", "stopped", "early_stopped"), Status.COMPLETE),
    **dict.fromkeys(("incomplete", "running", "crashed", "failed", "killed", "preempted", "fail"), Status.INCOMPLETE),
    **dict.fromkeys(("infeasible", "diverged", "nan"), Status.INFEASIBLE),
}


def _matches(path: Path) -> bool:
    if path.is_dir():
        return any(file.suffix.lower() in SUFFIXES for file in path.iterdir())
    return path.suffix.lower() in SUFFIXES


def _read(path: Path, options: ReadOptions) -> RunSource:
    if path.is_dir():
        runs, notices = _read_folder(path, options)
    else:
        runs, notices = _read_file(path, options)
    is_wandb = False
    for run in runs:
        columns = run.read().columns
        is_wandb = is_wandb or WANDB_STEP in columns
    if is_wandb:
        notices += _check_sampling(path, runs, options)
    return RunSource("wandb" if is_wandb else "table", path, runs, WANDB_STEP if is_wandb else None, notices=notices)


# --- files ---------------------------------------------------------------------------------------------------------


def _read_table(path: Path) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return a file as a frame of numbers and texts."""
    where = one_line(path, 300)
    require_size(path, MAX_TABLE_BYTES)
    notices: tuple[str, ...] = ()
    try:
        if path.suffix.lower() == ".parquet":
            frame = pl.read_parquet(path)
        elif path.suffix.lower() in (".csv", ".tsv"):
            frame = pl.read_csv(path, separator=_separator(path), infer_schema=False, truncate_ragged_lines=False)
        else:
            entries, notices = read_json_lines(path)
            names = dict.fromkeys(name for entry in entries for name in entry)
            rows = {name: [_scalar(entry.get(name)) for entry in entries] for name in names}
            frame = pl.DataFrame({name: pl.Series(cells, dtype=pl.String) for name, cells in rows.items()})
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        kind = path.suffix[1:].upper()
        raise RecordsError(f"{where}: the file must be a {kind} table ({one_line(error)}).") from None
    if not frame.width or not frame.height:
        raise RecordsError(f"{where}: the file must have a row per measurement. Found an empty table.")
    if frame.height > MAX_ROWS:
        raise RecordsError(f"{where}: a table must have at most {MAX_ROWS:,} rows. Found {frame.height:,}.")
    return frame.select(*(_typed(frame[name]) for name in frame.columns)), notices


def _separator(path: Path) -> str:
    """Return the character that separates the names of the first line: a comma, a semicolon or a tab."""
    with path.open("rb") as file:
        first = file.readline(2**20).decode("utf-8", "replace")
    return max(",;\t", key=first.count)


def _scalar(value: object) -> str | None:
    return None if value is None else value if isinstance(value, str) else json.dumps(value)


def _typed(column: pl.Series) -> pl.Series:
    """Return a column as numbers if all its cells are, else as text. Empty cells are null, ``nan`` is a number."""
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64)
    if column.dtype != pl.String:
        return column.cast(pl.String, strict=False)
    text = column.str.strip_chars()
    text = text.set(text == "", None).set(text == "null", None)
    lowered = text.str.to_lowercase()
    plain = lowered.replace(["nan", "infinity", "-infinity", "true", "false"], ["NaN", "inf", "-inf", "1", "0"])
    numbers = plain.cast(pl.Float64, strict=False)
    return numbers.alias(column.name) if numbers.null_count() == text.null_count() else text.alias(column.name)


def _read_file(path: Path, options: ReadOptions) -> tuple[list[SourceRun], tuple[str, ...]]:
    frame, notices = _read_table(path)
    _refuse_charts(path, frame)
    column = _trial_column(path, frame, options)
    parts = frame.partition_by(column, maintain_order=True, as_dict=True)
    constant = _constant_columns(frame, column, options)
    runs = []
    for (key,), part in parts.items():
        if key is None:
            notices += (f"{part.height:,} rows of {one_line(path.name)} name no run in '{column}' and are left out.",)
            continue
        name = f"{key:g}" if isinstance(key, float) else one_line(key)
        runs.append(_make_run(name, part.drop(column), constant, options))
    return runs, notices


def _trial_column(path: Path, frame: pl.DataFrame, options: ReadOptions) -> str:
    lowered = {name.lower(): name for name in frame.columns}
    if options.trial is not None:
        if options.trial not in frame.columns:
            near = suggest_names(options.trial, frame.columns)
            raise RecordsError(
                f"--trial must be a column of {one_line(path, 300)}: no '{one_line(options.trial)}'; {near}"
            )
        return options.trial
    for name in TRIAL_NAMES:
        if name in lowered:
            return lowered[name]
    raise RecordsError(
        f"{one_line(path, 300)}: rows of different trials must be told apart by a column, such as trial_id. Found the "
        f"columns {one_line(', '.join(frame.columns), 300)}. Name the column with --trial, or import a folder with one "
        "file per trial."
    )


def _constant_columns(frame: pl.DataFrame, by: str, options: ReadOptions) -> set[str]:
    """Return the columns that have one value in each run: its values, not its measurements."""
    others = [name for name in frame.columns if name != by]
    counts = frame.group_by(by).agg(pl.col(others).drop_nulls().n_unique()).select(others)
    constant = {name for name in others if (counts[name].max() or 0) <= 1 and not is_measured_name(name)}  # type: ignore[operator]
    if frame[by].n_unique() == frame.height:  # a row per run says nothing about what changes
        constant = {name for name in constant if frame[name].dtype == pl.String or is_chosen_name(name)}
    return (constant | set(options.parameters)) - set(options.metrics)


def _make_run(name: str, part: pl.DataFrame, constant: set[str], options: ReadOptions) -> SourceRun:
    values = values_in_name(name, options.name_pattern)
    status: Status | None = None
    for column in part.columns:
        if column not in constant and part[column].dtype != pl.String:
            continue
        cells = part[column].drop_nulls()
        value = to_value(cells[-1]) if len(cells) else None
        if value is None:
            continue
        if column.lower() in STATUS_NAMES and isinstance(value, str) and value.lower() in _STATUSES:
            status = _STATUSES[value.lower()]
        else:
            values[_config_name(column)] = value
    metrics = [c for c in part.columns if c not in constant and part[c].dtype != pl.String]
    return SourceRun(name, values, partial(_select, part, metrics), name=name, status=status)


def _select(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    return frame.select(columns)


def _config_name(column: str) -> str:
    return re.sub(r"^(?:config|params?|hparams?|hyperparameters?)[./]", "", column)


def values_in_name(name: str, pattern: str | None) -> dict[str, ImportedValue]:
    """Return the values in a run's name, by a pattern with named groups or as ``name=value`` pairs.

    >>> values_in_name("bs=64,lr=0.1", None)
    {'bs': 64.0, 'lr': 0.1}
    >>> values_in_name("b64-run", r"b(?P<batch_size>[0-9]+)")
    {'batch_size': 64.0}
    """
    if pattern is None:
        pairs = re.findall(r"([A-Za-z][A-Za-z0-9_.]*)=([^,;/\s=]+)", name)
        pairs = [(key.lstrip("_"), text.rstrip("_-")) for key, text in pairs]
    else:
        match = re.search(pattern, name)
        pairs = list(match.groupdict().items()) if match else []
    values = {key: to_value(text) for key, text in pairs}
    return {key: value for key, value in values.items() if value is not None}


# --- folders -------------------------------------------------------------------------------------------------------


def _read_folder(folder: Path, options: ReadOptions) -> tuple[list[SourceRun], tuple[str, ...]]:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    described: dict[str, tuple[dict[str, ImportedValue], Status | None]] = {}
    notices: tuple[str, ...] = ()
    for file in files:
        if file.stem.lower() in RUNS_NAMES:
            described |= _read_descriptions(file, options)
    runs = []
    for file in files:
        if file.stem.lower() in RUNS_NAMES:
            continue
        frame, more = _read_table(file)
        notices += more
        _refuse_charts(file, frame)
        values, status = described.get(file.stem, ({}, None))
        counts = frame.select(pl.all().drop_nulls().n_unique())
        constant = {c for c in frame.columns if counts[c].item() <= 1 and not is_measured_name(c)} - set(
            options.metrics
        )
        if frame.height == 1:
            constant = {c for c in constant if frame[c].dtype == pl.String or is_chosen_name(c)}
        run = _make_run(file.stem, frame, constant | set(options.parameters), options)
        values = {**run.values, **_read_config(file), **values}
        runs.append(SourceRun(file.stem, values, run.read, name=file.stem, status=status or run.status))
    return runs, notices


def _read_descriptions(file: Path, options: ReadOptions) -> dict[str, tuple[dict[str, ImportedValue], Status | None]]:
    """Return the values and the status of each run, by its name and by its id, from a table with a row per run."""
    frame, _ = _read_table(file)
    lowered = {name.lower(): name for name in frame.columns}
    keys = [lowered[name] for name in TRIAL_NAMES if name in lowered]
    keys = [options.trial] if options.trial in frame.columns else keys
    described = {}
    for row in frame.to_dicts():
        cells = {_config_name(name): to_value(cell) for name, cell in row.items() if name not in keys}
        states = [cells.pop(name, None) for name in list(cells) if name.lower() in STATUS_NAMES]
        status = next((_STATUSES.get(str(state).lower()) for state in states if state is not None), None)
        values = {name: cell for name, cell in cells.items() if cell is not None}
        for key in keys:
            if row[key] is not None:
                text = f"{row[key]:g}" if isinstance(row[key], float) else str(row[key])
                described[text] = (values, status)
    return described


def _read_config(file: Path) -> dict[str, ImportedValue]:
    """Return the values of ``NAME.config.json`` beside a run's file; W&B wraps each as ``{"value": …}``."""
    path = file.with_name(f"{file.stem}.config.json")
    if not path.is_file():
        return {}
    require_size(path, MAX_CONFIG_BYTES)
    try:
        data = parse_json(path.read_bytes())
    except ValueError as error:
        raise RecordsError(f"{one_line(path, 300)}: must be JSON ({one_line(error)}).") from None
    if not isinstance(data, dict):
        raise RecordsError(f"{one_line(path, 300)}: must be a JSON object. Found {type(data).__name__}.")
    plain = {k: v["value"] if isinstance(v, dict) and "value" in v else v for k, v in data.items() if k != "_wandb"}
    return flatten(plain)


# --- W&B -----------------------------------------------------------------------------------------------------------


def _refuse_charts(path: Path, frame: pl.DataFrame) -> None:
    if any(name.endswith(_CHART_ENDS) for name in frame.columns):
        raise RecordsError(
            f"{one_line(path, 300)}: a history must have every measurement. Found the export of a W&B chart (columns "
            "that end in __MIN and __MAX), which is sampled: gaps falsify steps to result. Export each run's whole "
            "history with run.scan_history(), or its history as Parquet."
        )


def _check_sampling(path: Path, runs: list[SourceRun], options: ReadOptions) -> tuple[str, ...]:
    """Refuse histories that W&B sampled, and return a notice on those that look as if it did."""
    sampled, gapped = [], []
    for run in runs:
        frame = run.read()
        if WANDB_STEP not in frame.columns:
            continue
        steps = frame[WANDB_STEP].drop_nulls().to_list()
        gaps = {later - earlier for earlier, later in pairwise(steps)}
        if not gaps or max(gaps) <= 1:
            continue
        if len(steps) in _SAMPLES:
            sampled.append(run.name)
        elif len(gaps) > 1:
            gapped.append(run.name)
    if sampled and not options.allow_sampled:
        raise RecordsError(
            f"{one_line(path, 300)}: a history must have every measurement. Found {len(sampled):,} of {len(runs):,} "
            f"with a round number of rows and gaps between them, such as '{one_line(sampled[0])}': run.history() "
            "samples 500 rows by default, and gaps falsify steps to result. Export them with run.scan_history(); if "
            "they are whole, pass --allow-sampled."
        )
    suspects = sorted({*sampled, *gapped})
    if not suspects:
        return ()
    return (
        f"{len(suspects):,} of {len(runs):,} histories have uneven gaps in {WANDB_STEP}, such as "
        f"'{one_line(suspects[0])}'. If they were sampled, as by run.history(), steps to result are too large.",
    )


IMPORTER = Importer("table", "CSV, Parquet or JSON lines, also exported from W&B", _matches, _read)
