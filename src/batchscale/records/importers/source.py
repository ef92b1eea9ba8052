"""The interface of importers: the training runs that another tool recorded, each with its values and measurements.

An importer is one module of this folder with one `Importer`. It reads files that may be damaged or hostile: it never
loads pickles, starts no process, and bounds what it reads. `mapping` decides what the names mean; `write_tree` writes.
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.model import Status
from batchscale.spec.durations import Unit
from batchscale.spec.space import ParameterConfig

ImportedValue = float | str

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
    values: Mapping[str, ImportedValue]
    read: Callable[[], pl.DataFrame]
    name: str = ""
    group: str = ""
    status: Status | None = None
    stop_reason: str | None = None
    failure: str | None = None
    configs: Mapping[str, ParameterConfig] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSource:
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
    read: Callable[[Path, ReadOptions], RunSource]


def to_value(value: object) -> ImportedValue | None:
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


def flatten(values: object, prefix: str = "") -> dict[str, ImportedValue]:
    """Return the numbers and texts of nested objects by their dotted names; lists are left out.

    >>> flatten({"optimizer": {"lr": 0.1}, "layers": [1, 2]})
    {'optimizer.lr': 0.1}
    """
    flat: dict[str, ImportedValue] = {}
    pending = [(prefix, values)]
    while pending:
        name, item = pending.pop()
        if isinstance(item, Mapping):
            pending += [(f"{name}.{key}" if name else str(key), inner) for key, inner in reversed([*item.items()])]
        elif (value := to_value(item)) is not None and name:
            flat[one_line(name)] = value
    return flat


class RunSeries:
    """The metrics of one run that were recorded point by point, 16 bytes a point."""

    def __init__(self) -> None:
        self._series: dict[str, tuple[array[float], array[float]]] = {}
        self.count = 0

    def add(self, metric: str, step: float, value: float) -> None:
        """Add a point, in the order of recording."""
        steps, values = self._series.setdefault(metric, (array("d"), array("d")))
        steps.append(step)
        values.append(value)
        self.count += 1
        if self.count > MAX_ROWS:
            raise RecordsError(
                f"A run must have at most {MAX_ROWS:,} values. Found more; it is damaged or no training."
            )

    def frame(self) -> pl.DataFrame:
        """Return a row per step, and a column per metric; of two values at one step the later counts."""
        arrays = {name: (np.array(steps), np.array(values)) for name, (steps, values) in self._series.items()}
        steps = np.unique(np.concatenate([steps for steps, _ in arrays.values()] or [np.empty(0)]))
        columns = [pl.Series(STEP, steps, dtype=pl.Float64)]
        for name, (own_steps, values) in arrays.items():
            rows = np.searchsorted(steps, own_steps)
            cells, present = np.zeros(len(steps)), np.zeros(len(steps), dtype=bool)
            cells[rows], present[rows] = values, True
            column = pl.Series(name if name != STEP else f"{STEP}_", cells)
            columns.append(column.set(pl.Series(~present), None))
        return pl.DataFrame(columns)


def to_number(value: object) -> float | None:
    """Return a measured value, which may be NaN or infinite and may be written as text; None for anything else.

    >>> to_number("NaN"), to_number("-Infinity"), to_number(True), to_number("high")
    (nan, -inf, 1.0, None)
    """
    return _float(value) if isinstance(value, bool | int | float | str) else None


def _float(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None
