"""Curves from an analysis of records, from the JSON of an analysis, or from a CSV file."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchscale.analysis.curve_analysis import ANALYSIS_SCHEMA, Analysis
from batchscale.errors import PlanningError, one_line
from batchscale.planning.csv_rows import CsvRow, read_csv_rows
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.runs import is_runs_file
from batchscale.planning.step_times import COLUMN_ALIASES
from batchscale.spec.untrusted_text import parse_json

MAX_JSON_BYTES = 50_000_000


def analysis_curve(analysis: Analysis) -> PlanCurve:
    """Return the curve of an analysed workload: a point per batch size, with the interval of a fresh search."""
    columns = ("batch_size", "steps", "steps_low", "steps_high")
    names = [name for name in analysis.curve.columns if name not in ANALYSIS_SCHEMA and name not in columns]
    curve_rows = analysis.curve.sort("batch_size").to_dicts()
    rows = [{key: row[key] for key in columns} | {"values": {name: row[name] for name in names}} for row in curve_rows]
    workload = None if analysis.workload is None else str(analysis.workload)
    curve = _curve(rows, workload, None if analysis.goal is None else str(analysis.goal))
    return replace(curve, tokens_per_example=analysis.unit.tokens_per_example)


def read_analysis_json(path: Path) -> PlanCurve:
    """Return the curve in the JSON that ``batchscale analyze --json`` prints for one workload."""
    where = one_line(path, 300)
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise PlanningError(f"{where}: an analysis must have at most {MAX_JSON_BYTES:,} bytes. Found more.")
        data = parse_json(path.read_bytes())
    except OSError as error:
        raise PlanningError(f"{where}: the file cannot be read ({one_line(error.strerror)}).") from None
    except ValueError as error:
        raise PlanningError(f"{where}: an analysis must be a JSON object ({one_line(error)}).") from None
    if isinstance(data, list):
        raise PlanningError(
            f"{where}: a plan is of one workload. Found a list of {len(data)}; analyze one with --workload."
        )
    rows = data.get("curve") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise PlanningError(
            f"{where}: an analysis must have a list 'curve' of objects. Found none; see 'analyze --json'."
        )
    curve_rows = [_json_row(row, where) for row in rows]
    tokens = data.get("tokens_per_example")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or not tokens >= 1):
        raise PlanningError(f"{where}: tokens_per_example must be a whole number. Found {one_line(repr(tokens))}.")
    curve = _curve(curve_rows, _text(data.get("workload")), _text(data.get("goal")))
    return replace(curve, tokens_per_example=tokens)


def read_curve_csv(path: Path) -> PlanCurve:
    """Return the curve of a CSV file with a row per batch size.

    Columns batch_size and steps, and any of steps_low, steps_high, attempts, successes, give_up. An empty cell of
    steps is a batch size that did not reach the goal.
    """
    file = read_csv_rows(path, "a curve", ("batch_size", "steps"), COLUMN_ALIASES)
    if is_runs_file(file):
        raise PlanningError(f"{file.where}: a curve must have one row per batch size; this is a file of runs.")
    reached = [row for row in file.rows if row.text("steps") and row.whole("successes", zero=True) != 0]
    unreached = [
        f"batch size {row.required('batch_size')} never reached the goal" for row in file.rows if row not in reached
    ]
    return PlanCurve(tuple(_csv_point(row) for row in reached), None, None, tuple(unreached))


def with_give_up(curve: PlanCurve, steps: float) -> PlanCurve:
    """Return the curve if every run is given up at this step.

    A point is one number with an interval and no runs, so the step must lie above the interval (only the cost of
    failed runs changes) or below it (the point never reaches the goal).
    """
    points, unreached = [], list(curve.unreached)
    for point in curve.points:
        high = point.high if point.high is not None else point.steps
        low = point.low if point.low is not None else point.steps
        if steps < low:
            unreached.append(
                f"batch size {point.batch_size} needs {point.steps:,.0f} steps, more than --give-up {steps:,.0f}"
            )
        elif steps < high:
            raise PlanningError(
                f"The effect of --give-up {steps:,.0f} can only be counted from runs. Found batch size "
                f"{point.batch_size} with {low:,.0f} to {high:,.0f} steps; give a file with one row per run, or a step "
                f"above {high:,.0f}."
            )
        else:
            points.append(replace(point, give_up=steps))
    return replace(curve, points=tuple(points), unreached=tuple(unreached))


def _csv_point(row: CsvRow) -> CurvePoint:
    steps = row.number("steps")
    assert steps is not None
    try:
        return CurvePoint(
            row.required("batch_size"),
            steps,
            row.number("steps_low"),
            row.number("steps_high"),
            row.whole("attempts"),
            row.whole("successes"),
            row.number("give_up"),
        )
    except PlanningError as error:
        raise PlanningError(f"{row.place}: {error}") from None


def _curve(rows: list[dict[str, Any]], workload: str | None, goal: str | None) -> PlanCurve:
    points, unreached = [], []
    for row in rows:
        if row["steps"] is None:
            unreached.append(f"no trial with batch size {row['batch_size']} reached the goal")
            continue
        values = {name: value for name, value in row["values"].items() if isinstance(value, int | float)}
        text = ", ".join(f"{one_line(name, 60)} {value:.6g}" for name, value in values.items())
        points.append(
            CurvePoint(
                int(row["batch_size"]), float(row["steps"]), row["steps_low"], row["steps_high"], metaparameters=text
            )
        )
    return PlanCurve(tuple(points), workload, goal, tuple(unreached))


def _json_row(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in ("batch_size", "steps", "steps_low", "steps_high"):
        value = row.get(key)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf
        ):
            raise PlanningError(f"{where}: {key} of a curve must be a positive number. Found {one_line(repr(value))}.")
        values[key] = value
    if not isinstance(values["batch_size"], int):
        raise PlanningError(
            f"{where}: batch_size of a curve must be a whole number. Found {one_line(repr(row.get('batch_size')))}."
        )
    metaparameters = row.get("metaparameters")
    return values | {"values": metaparameters if isinstance(metaparameters, dict) else {}}


def _text(value: object) -> str | None:
    return one_line(value, 200) if isinstance(value, str) else None
