"""Points, frames, files and records become curves: ``fit``, ``read`` and ``analyze``."""

import os
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.analysis.confidence_set import FEWEST_SIZES
from batchscale.analysis.curve_analysis import AnalysisOptions, analyze_points, stored_goal
from batchscale.analysis.curve_analysis import analyze as analyze_workload
from batchscale.analysis.curves import MAX_SIZES, MAX_VALUE, read_curve
from batchscale.api.curve import Curve
from batchscale.errors import AnalysisError, RecordsError, SpecError, UnknownNameError, one_line
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.records.tree.layout import RunPaths
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName, match_workloads

COLUMNS = ("batch_size", "steps")
SPACING = "spacing"
RECORDS = "records"
"""The folder of the records in a folder of ``measure`` or of the quickstart."""


def fit(points: Any, *, spacing: int | Mapping[int, int] | None = None, tokens_per_example: int | None = None) -> Curve:
    """Fit the scaling law to steps per batch size, measured anywhere.

    Args:
        points: Steps by batch size as a dictionary; or a frame (Polars, pandas) with the columns ``batch_size`` and
            ``steps``; or the path of such a CSV file. Several runs of a batch size are a list of steps, or rows of
            their own; a run that did not reach the goal has the steps None.
        spacing: The steps between two evaluations, or those by batch size. By default a column ``spacing`` of a frame
            or a file, or else an interval that divides all steps. A point that it leaves open by more than a fifth
            decides nothing.
        tokens_per_example: The tokens of an example (sequence); texts and charts are then in tokens, numbers stay in
            examples.

    Raises:
        AnalysisError: the points are not positive numbers, or there are fewer than three batch sizes.

    >>> import batchscale as bs
    >>> curve = bs.fit({16: [12000, 11800], 32: 6100, 64: 3300, 128: 1900, 256: None})
    >>> curve.to_frame()["steps"].round().to_list()
    [11900.0, 6100.0, 3300.0, 1900.0]
    """
    rows = read_curve(points) if isinstance(points, str | Path) else _rows(points)
    sizes = rows.drop_nulls("steps")["batch_size"].n_unique()
    if sizes < FEWEST_SIZES:
        raise AnalysisError(
            f"A scaling fit needs the steps to result at {FEWEST_SIZES} batch sizes or more. Found {sizes}."
        )
    tokens = tokens_per_example
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
        raise AnalysisError(f"tokens_per_example must be a whole number of at least 1. Found {one_line(repr(tokens))}.")
    options = AnalysisOptions(tokens_per_example=tokens)
    return Curve(analyze_points(rows if spacing is None else _with_spacing(rows, spacing), options))


def read(path: str | Path) -> Records:
    """Return the records at a path: a records tree, a table, an archive, or a folder of ``measure``.

    Raises:
        RecordsError: there are no records at the path.

    >>> import batchscale as bs
    >>> bs.read("nowhere")
    Traceback (most recent call last):
    batchscale.errors.RecordsError: Records are a directory, a table or an archive. Found nothing at nowhere.
    """
    if not isinstance(path, str | os.PathLike):
        raise RecordsError(f"Records are what batchscale.read returns, or a path. Found {one_line(repr(path))}.")
    place = Path(path)
    inner = place / RECORDS
    records = read_records(inner if RunPaths(inner).experiment.is_file() else place)
    if not records.workloads:
        raise RecordsError(f"{one_line(place, 500)}: the records must contain a study. Found none.")
    return records


def analyze(
    records: Records | str | Path, goal: str | Goal | None = None, *, workload: str | WorkloadName | None = None
) -> Curve:
    """Return the curve of a workload for a goal.

    Args:
        records: What ``read`` returns, or a path.
        goal: Such as ``"val/error < 0.05"``; by default the goal of the studies.
        workload: Its name ``dataset/model/optimizer``, or a part of it; needed if there are several.

    Raises:
        AnalysisError: there are several workloads, or no trial is COMPLETE.
        SpecError: the goal is missing, or is not valid.
        UnknownNameError: there is no such workload, or it lacks the metric.
    """
    opened = records if isinstance(records, Records) else read(records)
    name = select_workload(opened, workload)
    chosen = Goal.parse(goal) if isinstance(goal, str) else goal or stored_goal(opened, name)
    if chosen is None:
        metrics = [metric for metric in opened.sources[name]().collect_schema() if "/" in metric]
        raise SpecError(
            f'A goal is needed, such as goal="{(metrics or ["val/error"])[0]} < 0.1": the studies of {name} name none. '
            f"Their metrics are {one_line(', '.join(metrics), 300)}."
        )
    return Curve(analyze_workload(opened, name, chosen), opened)


def select_workload(records: Records, workload: str | WorkloadName | None) -> WorkloadName:
    """Return the one workload of this name, or whose name contains this text; the only one by default."""
    if isinstance(workload, WorkloadName):
        return workload
    try:
        names = records.workloads if workload is None else match_workloads(records.workloads, workload)
    except UnknownNameError as error:
        raise UnknownNameError(str(error).removeprefix("--")) from None
    if len(names) != 1:
        listed = ", ".join(f'"{name}"' for name in names[:5])
        raise AnalysisError(f"A curve is of one workload. Found {len(names)}; pass one as workload=: {listed}.")
    return names[0]


def _rows(points: Any) -> pl.DataFrame:
    """Return the rows of a dictionary or of a frame, checked; null steps where the goal was not reached."""
    columns = _dict_columns(points) if isinstance(points, Mapping) else _frame_columns(points)
    sizes = [_number(size, "batch_size", None) for size in columns["batch_size"]]
    checked = {
        name: sizes
        if name == "batch_size"
        else [_number(value, name, size) for size, value in zip(columns["batch_size"], values, strict=True)]
        for name, values in columns.items()
    }
    rows = pl.DataFrame(checked, schema=dict.fromkeys(checked, pl.Float64))
    different = rows["batch_size"].n_unique()
    if different > MAX_SIZES:
        raise AnalysisError(f"A curve has at most {MAX_SIZES:,} batch sizes. Found {different:,}.")
    return rows.sort(*COLUMNS)


def _dict_columns(points: Mapping[Any, Any]) -> dict[str, list[Any]]:
    pairs = [
        (size, run)
        for size, steps in points.items()
        for run in (steps if isinstance(steps, Iterable) and not isinstance(steps, str) else [steps])
    ]
    return {name: [pair[place] for pair in pairs] for place, name in enumerate(COLUMNS)}


def _frame_columns(frame: Any) -> dict[str, list[Any]]:
    collected = frame.collect() if isinstance(frame, pl.LazyFrame) else frame
    if not hasattr(collected, "columns"):
        raise AnalysisError(
            "Points are a dictionary of steps by batch size, a frame, or the path of a CSV file. Found "
            f"{one_line(repr(frame))}."
        )
    names = list(collected.columns)
    if any(name not in names for name in COLUMNS):
        raise AnalysisError(f"A frame of points has the columns batch_size and steps. Found {one_line(names)}.")
    return {name: collected[name].to_list() for name in (*COLUMNS, SPACING) if name in names}


def _number(value: Any, name: str, size: Any) -> float | None:
    where = "" if size is None else f" at batch size {one_line(size)}"
    if name != "batch_size" and (value is None or value != value):  # pandas has NaN for a missing number
        return None
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < float(value) <= MAX_VALUE:
        raise AnalysisError(f"{name} is a positive number. Found {one_line(repr(value))}{where}.")
    if name == "batch_size" and not float(value).is_integer():
        raise AnalysisError(f"{name} is a whole number. Found {one_line(repr(value))}.")
    return float(value)


def _with_spacing(rows: pl.DataFrame, spacing: int | Mapping[int, int]) -> pl.DataFrame:
    """Return the rows with these steps between evaluations."""
    sizes = [int(size) for size in rows["batch_size"].unique()]
    by_size = dict(spacing) if isinstance(spacing, Mapping) else dict.fromkeys(sizes, spacing)
    for size, steps in by_size.items():
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1 or size not in sizes:
            raise AnalysisError(
                "spacing is a whole number of steps between evaluations, or one for each batch size of the points. "
                f"Found {one_line(repr(steps))} at batch size {one_line(size)}."
            )
    before = rows[SPACING].to_list() if SPACING in rows.columns else [None] * rows.height
    values = [by_size.get(int(size), known) for size, known in zip(rows["batch_size"], before, strict=True)]
    return rows.with_columns(pl.Series(SPACING, values, dtype=pl.Float64))
