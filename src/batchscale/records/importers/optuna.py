"""Studies of Optuna: its SQLite storage (schema 12) and its journal files. Never pickles."""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.errors import RecordsError, SpecError, one_line
from batchscale.records.importers.source import (
    STEP,
    ImportedValue,
    Importer,
    ReadOptions,
    RunSource,
    SourceRun,
    flatten,
    to_value,
)
from batchscale.records.importers.sqlite import ReadOnlyDatabase, is_sqlite, open_database
from batchscale.records.importers.text_lines import read_json_lines
from batchscale.records.model import Status
from batchscale.spec.space import ParameterConfig, ParameterType, Scale
from batchscale.spec.untrusted_text import parse_json

SCHEMAS = (12,)
OBJECTIVE = "objective"
MAX_STEPPED = 1000
_TABLES = {"studies", "study_directions", "trials", "trial_params", "trial_intermediate_values", "version_info"}
_STATES: Mapping[str, tuple[Status, str | None]] = {
    "COMPLETE": (Status.COMPLETE, None),
    "PRUNED": (Status.COMPLETE, "pruned"),
    "FAIL": (Status.INCOMPLETE, "failed"),
    "RUNNING": (Status.INCOMPLETE, "running"),
}
_JOURNAL_STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")
_METRIC_NAMES = "study:metric_names"


@dataclass
class _Study:
    name: str
    directions: list[str] = field(default_factory=list)
    values: dict[str, ImportedValue] = field(default_factory=dict)
    metric_names: tuple[str, ...] = ()
    deleted: bool = False


@dataclass
class _Trial:
    study: int
    number: int
    state: str
    values: dict[str, ImportedValue] = field(default_factory=dict)
    configs: dict[str, ParameterConfig] = field(default_factory=dict)
    rows: dict[int, float] = field(default_factory=dict)


def _matches(path: Path) -> bool:
    if is_sqlite(path):
        with open_database(path) as database:
            return database.tables >= _TABLES
    return path.is_file() and _is_journal(path)


def _is_journal(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(100_000)
    return first.startswith(b"{") and b'"op_code"' in first


def _read(path: Path, _options: ReadOptions) -> RunSource:
    studies, trials, notices = _read_database(path) if is_sqlite(path) else _read_journal(path)
    several = sorted(study.name for study in studies.values() if len(study.directions) > 1 and not study.deleted)
    if several:
        raise RecordsError(
            f"{one_line(path, 300)}: a trial must have one objective, because only such trials report values during "
            f"training. Found several in the study {one_line(several[0])}. Import the runs' own histories instead."
        )
    runs, waiting = [], 0
    for trial in trials.values():
        study = studies.get(trial.study)
        if study is None or study.deleted:
            continue
        if trial.state not in _STATES:
            waiting += 1
            continue
        status, reason = _STATES[trial.state]
        metric = study.metric_names[0] if study.metric_names else OBJECTIVE
        runs.append(
            SourceRun(
                run_id=f"{study.name}/{trial.number}",
                name=str(trial.number),
                group=study.name,
                values={**study.values, **trial.values},
                read=partial(_frame, trial.rows, metric),
                status=status,
                stop_reason=reason,
                failure="Optuna recorded the trial as failed." if trial.state == "FAIL" else None,
                configs=trial.configs,
            )
        )
    if runs and not any(trial.rows for trial in trials.values()):
        raise RecordsError(
            f"{one_line(path, 300)}: steps to result need values during training. Found none in {len(runs):,} trials: "
            "the objective never called trial.report(value, step). Import the histories of the runs from where they "
            "were logged."
        )
    if waiting:
        notices += (f"{waiting:,} trials had not started and are left out.",)
    directions = {direction for study in studies.values() if not study.deleted for direction in study.directions}
    maximize = directions == {"MAXIMIZE"} if len(directions) == 1 else None
    return RunSource("optuna", path, runs, STEP, maximize=maximize, notices=notices)


def _frame(rows: Mapping[int, float], metric: str) -> pl.DataFrame:
    steps = sorted(rows)
    values = pl.Series([rows[step] for step in steps], dtype=pl.Float64)
    return pl.DataFrame({STEP: pl.Series([float(step) for step in steps], dtype=pl.Float64), metric: values})


# --- SQLite --------------------------------------------------------------------------------------------------------


def _read_database(path: Path) -> tuple[dict[int, _Study], dict[int, _Trial], tuple[str, ...]]:
    with ExitStack() as stack:
        database = stack.enter_context(open_database(path))
        versions = [row[0] for row in database.select("version_info", ("schema_version",))]
        if not versions or any(version not in SCHEMAS for version in versions):
            raise RecordsError(
                f"{one_line(path, 300)}: the storage must have Optuna's schema {SCHEMAS[0]}. Found "
                f"{one_line(versions)}. Upgrade a copy of it with 'optuna storage upgrade', or import it with a later "
                "batchscale."
            )
        studies = {row[0]: _Study(one_line(row[1])) for row in database.select("studies", ("study_id", "study_name"))}
        for study_id, direction in database.select(
            "study_directions", ("study_id", "direction"), 'ORDER BY "objective"'
        ):
            if study_id in studies:
                studies[study_id].directions.append(str(direction))
        skipped = _read_study_attributes(database, studies)
        trials = {
            row[0]: _Trial(row[1], int(row[2]), str(row[3]))
            for row in database.select("trials", ("trial_id", "study_id", "number", "state"), 'ORDER BY "trial_id"')
        }
        skipped += _read_trial_values(database, trials)
    notices = (f"{skipped:,} attributes that are not JSON are left out.",) if skipped else ()
    return studies, trials, notices


def _read_study_attributes(database: ReadOnlyDatabase, studies: Mapping[int, _Study]) -> int:
    skipped = 0
    for table in ("study_user_attributes", "study_system_attributes"):
        if table not in database.tables:
            continue
        for study_id, key, text in database.select(table, ("study_id", "key", "value_json")):
            if study_id not in studies:
                continue
            try:
                value = parse_json(text)
            except (ValueError, TypeError):
                skipped += 1
                continue
            if table == "study_user_attributes":
                studies[study_id].values |= flatten({str(key): value})
            elif key == _METRIC_NAMES and isinstance(value, list):
                studies[study_id].metric_names = tuple(one_line(name) for name in value)
    return skipped


def _read_trial_values(database: ReadOnlyDatabase, trials: Mapping[int, _Trial]) -> int:
    skipped = 0
    if "trial_user_attributes" in database.tables:
        for trial_id, key, text in database.select("trial_user_attributes", ("trial_id", "key", "value_json")):
            try:
                if trial_id in trials:
                    trials[trial_id].values |= flatten({str(key): parse_json(text)})
            except (ValueError, TypeError):
                skipped += 1
    for trial_id, name, value, text in database.select(
        "trial_params", ("trial_id", "param_name", "param_value", "distribution_json")
    ):
        if trial_id in trials:
            _add_parameter(trials[trial_id], str(name), value, text)
    columns = ("trial_id", "step", "intermediate_value", "intermediate_value_type")
    for trial_id, step, value, kind in database.select("trial_intermediate_values", columns, 'ORDER BY "step"'):
        if trial_id in trials and isinstance(step, int):
            special = {"NAN": math.nan, "INF_POS": math.inf, "INF_NEG": -math.inf}.get(str(kind))
            number = special if special is not None else value
            if isinstance(number, int | float):
                trials[trial_id].rows[step] = float(number)
    return skipped


# --- journal -------------------------------------------------------------------------------------------------------


def _read_journal(path: Path) -> tuple[dict[int, _Study], dict[int, _Trial], tuple[str, ...]]:
    """Replay the operations of a journal; studies and trials are numbered in the order of their creation."""
    studies: dict[int, _Study] = {}
    trials: dict[int, _Trial] = {}
    numbers: dict[int, int] = {}
    unknown = 0
    lines, notices = read_json_lines(path)
    for entry in lines:
        try:
            unknown += not _apply(entry, studies, trials, numbers)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            unknown += 1
    if unknown:
        notices += (f"{unknown:,} lines of the journal are of an unknown kind and left out.",)
    return studies, trials, notices


def _apply(entry: Any, studies: dict[int, _Study], trials: dict[int, _Trial], numbers: dict[int, int]) -> bool:
    match entry["op_code"]:
        case 0:
            directions = [{1: "MINIMIZE", 2: "MAXIMIZE"}.get(code, "NOT_SET") for code in entry["directions"]]
            if not any(study.name == entry["study_name"] and not study.deleted for study in studies.values()):
                studies[len(studies)] = _Study(one_line(entry["study_name"]), directions)
        case 1:
            studies[entry["study_id"]].deleted = True
        case 2:
            studies[entry["study_id"]].values |= flatten(entry["user_attr"])
        case 3:
            names = entry["system_attr"].get(_METRIC_NAMES)
            if isinstance(names, list):
                studies[entry["study_id"]].metric_names = tuple(one_line(name) for name in names)
        case 4:
            study = entry["study_id"]
            trial = _Trial(study, numbers.get(study, 0), _JOURNAL_STATES[entry.get("state", 0)])
            numbers[study] = trial.number + 1
            trials[len(trials)] = trial
            for name, value in entry.get("params", {}).items():
                _add_parameter(trial, name, value, entry["distributions"][name])
            trial.values |= flatten(entry.get("user_attrs", {}))
            trial.rows |= {int(step): float(v) for step, v in entry.get("intermediate_values", {}).items()}
        case 5:
            name, value = entry["param_name"], entry["param_value_internal"]
            _add_parameter(trials[entry["trial_id"]], name, value, entry["distribution"])
        case 6:
            trials[entry["trial_id"]].state = _JOURNAL_STATES[entry["state"]]
        case 7:
            trials[entry["trial_id"]].rows[int(entry["step"])] = float(entry["intermediate_value"])
        case 8:
            trials[entry["trial_id"]].values |= flatten(entry["user_attr"])
        case 9:
            pass
        case _:
            return False
    return True


# --- search spaces -------------------------------------------------------------------------------------------------


def _add_parameter(trial: _Trial, name: str, internal: object, distribution: object) -> None:
    """Add the value and the range of a metaparameter from Optuna's internal value and its distribution as JSON."""
    try:
        data = parse_json(distribution) if isinstance(distribution, str) else None
    except ValueError:
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("attributes"), dict):
        return
    kind, attributes = str(data.get("name")), data["attributes"]
    value: object = internal
    if kind == "CategoricalDistribution":
        choices = attributes.get("choices")
        index = internal if isinstance(internal, int | float) else -1
        if not isinstance(choices, list) or not 0 <= index < len(choices):
            return
        value = choices[int(index)]
    checked = to_value(value)
    if checked is not None:
        trial.values[one_line(name)] = checked
    try:
        config = _config(one_line(name), kind, attributes)
    except (SpecError, TypeError, ValueError, KeyError, OverflowError):
        return
    if config is not None:
        trial.configs[config.name] = config


def _config(name: str, kind: str, attributes: Mapping[str, Any]) -> ParameterConfig | None:
    if kind == "CategoricalDistribution":
        points = [to_value(choice) for choice in attributes["choices"]]
        numbers = tuple(point for point in points if isinstance(point, float))
        return ParameterConfig(name, ParameterType.DISCRETE, feasible_points=numbers) if numbers else None
    whole = kind.startswith("Int")
    is_log = bool(attributes.get("log")) or "Log" in kind
    scale = Scale.LOG if is_log else Scale.LINEAR
    low, high = float(attributes["low"]), float(attributes["high"])
    step = attributes.get("step") or 1
    if whole and step != 1 and (high - low) / step <= MAX_STEPPED:
        stepped = tuple(float(value) for value in range(int(low), int(high) + 1, int(step)))
        return ParameterConfig(name, ParameterType.DISCRETE, feasible_points=stepped)
    return ParameterConfig(name, ParameterType.INTEGER if whole else ParameterType.DOUBLE, low, high, scale)


IMPORTER = Importer("optuna", "Optuna (SQLite of schema 12, journal file)", _matches, _read)
