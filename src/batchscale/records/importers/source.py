"""The interface of importers: the training runs that another tool recorded, each with its values and measurements.

An importer is one module of this folder with one `Importer`. It reads files that may be damaged or hostile: it never
loads pickles, starts no process, and bounds what it reads. `mapping` decides what the names mean; `write_tree` writes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.model import Status
from batchscale.spec.durations import Unit
from batchscale.spec.space import ParameterConfig

Value = float | str

MAX_RUNS = 1_000_000
MAX_ROWS = 20_000_000
"""Of one run: more rows than any training is evaluated; a file with more is damaged or hostile."""
MAX_TEXT = 500

STEP = "step"
"""The column of steps of a source that has exactly one kind of them."""


@dataclass(frozen=True)
class SourceRun:
    """One training run.

    ``values`` are its metaparameters and other facts by name. ``read`` returns its rows in the order in which they
    were recorded: numeric columns only, those of steps and of metrics, null where a row has no value. ``group`` is the
    experiment or study that it belongs to. ``status`` is None if the source has none. ``configs`` are the ranges that
    were searched, where the source has them.
    """

    run_id: str
    values: Mapping[str, Value]
    read: Callable[[], pl.DataFrame]
    name: str = ""
    group: str = ""
    status: Status | None = None
    stop_reason: str | None = None
    failure: str | None = None
    configs: Mapping[str, ParameterConfig] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """The runs of one file or folder.

    ``step_column`` is the column of steps that every run has, if it is the source's own; ``unit`` its unit if that is
    certain. ``maximize`` is the direction of the only metric, if the source has one. ``notices`` are sentences for the
    user.
    """

    kind: str
    path: Path
    runs: Sequence[SourceRun]
    step_column: str | None = None
    unit: Unit | None = None
    maximize: bool | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadOptions:
    """Options that only some sources need: the column of trials, the values in names, sampled histories."""

    trial: str | None = None
    name_pattern: str | None = None
    allow_sampled: bool = False
    metrics: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Importer:
    """``matches`` is true for a path of this kind, decided by its first bytes and names; ``read`` opens it."""

    kind: str
    title: str
    matches: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], Source]


def to_value(value: object) -> Value | None:
    """Return a recorded value as a finite number or a text; None if it is empty or neither.

    >>> to_value("0.1"), to_value(True), to_value("sgd"), to_value([1]), to_value(float("nan"))
    (0.1, 1.0, 'sgd', None, None)
    """
    if isinstance(value, bool | int | float):
        number = _float(value)
        return number if number is not None and math.isfinite(number) else None
    if not isinstance(value, str) or not value.strip():
        return None
    number = _float(value)
    if number is not None and math.isfinite(number) and "_" not in value:
        return number
    return {"true": 1.0, "false": 0.0}.get(value.strip().lower(), one_line(value, MAX_TEXT))


def flatten(values: object, prefix: str = "") -> dict[str, Value]:
    """Return the numbers and texts of nested objects by their dotted names; lists are left out.

    >>> flatten({"optimizer": {"lr": 0.1}, "layers": [1, 2]})
    {'optimizer.lr': 0.1}
    """
    flat: dict[str, Value] = {}
    pending = [(prefix, values)]
    while pending:
        name, item = pending.pop()
        if isinstance(item, Mapping):
            pending += [(f"{name}.{key}" if name else str(key), inner) for key, inner in reversed([*item.items()])]
        elif (value := to_value(item)) is not None and name:
            flat[one_line(name)] = value
    return flat


def join_series(points: Iterable[tuple[str, int | float, float]]) -> pl.DataFrame:
    """Return rows of ``step`` and one column per metric from single points of (metric, step, value).

    The points of a step become one row. Where a metric was recorded twice at a step, the later value counts.
    """
    series: dict[str, dict[int | float, float]] = {}
    for count, (name, step, value) in enumerate(points):
        series.setdefault(name, {})[step] = value
        if count >= MAX_ROWS:
            raise RecordsError(
                f"A run must have at most {MAX_ROWS:,} values. Found more; it is damaged or no training."
            )
    steps = sorted({step for values in series.values() for step in values})
    columns = {STEP: pl.Series([float(step) for step in steps], dtype=pl.Float64)}
    for name, values in series.items():
        columns[name if name != STEP else f"{STEP}_"] = pl.Series(
            [values.get(step) for step in steps], dtype=pl.Float64
        )
    return pl.DataFrame(columns)


def _float(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
