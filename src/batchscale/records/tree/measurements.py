"""The text of ``measurements.csv``: writing cells, reading a file line by line, and its checksum.

First column ``step``, then ``split/metric``. This is the careful reader that reports every fault with its line;
``bulk`` reads thousands of sound files at once.
"""

import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.records.model import MAX_WHOLE
from batchscale.records.rules import Fault
from batchscale.records.tree.layout import MAX_LINE_BYTES

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RESERVED_COLUMNS = ("step", "batch_size", "trial_id", "dataset", "model", "optimizer")
MAX_COLUMNS = 10_000

_CELL = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII)
_STEP = re.compile(r"\d{1,16}(?:\.0*)?", re.ASCII)
_PLAIN = b"0123456789.,+-eE\n"
_PLAIN_DIGITS = 15

Cell = float | np.floating[Any] | None


@dataclass(frozen=True)
class Measurement:
    """One evaluation during a trial: the step and the value of each ``split/metric``; None is a value not taken."""

    step: int
    values: Mapping[str, Cell]


@dataclass(frozen=True)
class MeasurementTable:
    """The sound part of one ``measurements.csv``, and the faults of the rest.

    ``columns`` has one list per metric. Rows behind a line that cannot be read are left out, as is a row whose step
    does not grow.
    """

    metrics: tuple[str, ...]
    steps: list[int]
    columns: list[list[float | None]]
    faults: list[Fault]

    def to_frame(self) -> pl.DataFrame:
        """Return the rows as a frame of ``step`` and the metrics."""
        data = {"step": pl.Series(self.steps, dtype=pl.Int64)}
        for name, cells in zip(self.metrics, self.columns, strict=True):
            data[name] = pl.Series(cells, dtype=pl.Float64)
        return pl.DataFrame(data)


def format_number(value: Cell) -> str:
    """Return the shortest text that reads back as the same number: of float32 for float32, of float64 otherwise.

    >>> format_number(0.1), format_number(np.float32(0.1)), format_number(float("-inf")), format_number(None)
    ('0.1', '0.1', '-inf', '')
    """
    if type(value) is float:  # nearly always
        return repr(value)
    if value is None:
        return ""
    if isinstance(value, float | int) and not isinstance(value, bool):  # numpy.float64 as well
        return float.__repr__(float(value))
    if isinstance(value, np.floating) and value.itemsize <= 4:
        return str(np.float32(value))
    raise RecordsError(f"A metric value is a float, numpy.float32 or None. Found {one_line(repr(value))}.")


def format_header(metrics: Sequence[str]) -> str:
    """Return the first line, without its end."""
    faults = list(_header_faults(["step", *metrics]))
    if faults:
        raise RecordsError(f"measurements: {faults[0]}")
    return ",".join(("step", *metrics))


def format_row(measurement: Measurement, metrics: Sequence[str]) -> str:
    """Return one line, without its end; a metric that was not measured is an empty cell."""
    step = measurement.step
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= MAX_WHOLE:
        raise RecordsError(f"A step is a whole number of at least 0. Found {one_line(repr(step))}.")
    values = measurement.values
    unknown = [name for name in values if name not in metrics]
    if unknown:
        raise RecordsError(
            f"All measurements of a trial have the metrics of its first one. Found also {one_line(unknown)}."
        )
    return ",".join([str(step), *[format_number(values.get(name)) for name in metrics]])


def csv_text(measurements: Iterable[Measurement]) -> bytes:
    """Return the bytes of ``measurements.csv``; the columns are the metrics of the first measurement."""
    rows = list(measurements)
    metrics = list(rows[0].values) if rows else []
    lines = (format_header(metrics), *(format_row(row, metrics) for row in rows))
    return "".join(f"{line}\n" for line in lines).encode()


def measurements_checksum(text: bytes) -> str:
    """Return the SHA-256 of a ``measurements.csv``, in hexadecimal."""
    return hashlib.sha256(text).hexdigest()


def checksum_fault(recorded: str | None, actual: str) -> Fault | None:
    """Return the fault of a file whose checksum is not the recorded one; None if it is, or if none was recorded."""
    if recorded is None or recorded == actual:
        return None
    return Fault(None, "changed-measurements", f"checksum {actual[:12]}… where {recorded[:12]}… was recorded")


def parse_header(line: bytes) -> tuple[tuple[str, ...], list[Fault]]:
    """Return the metric names of a first line, and its faults."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return (), [Fault(1, "not-utf8", one_line(error))]
    names = text.split(",")
    return tuple(names[1:]), list(_header_faults(names))


def _header_faults(names: Sequence[str]) -> Iterator[Fault]:
    if names[0] != "step":
        yield Fault(1, "missing-column", f"the first column {one_line(repr(names[0]), 60)}")
    if len(names) > MAX_COLUMNS:
        yield Fault(1, "column-name", f"{len(names):,} columns, more than {MAX_COLUMNS:,}")
        return
    seen: set[str] = set()
    for name in names[1:]:
        if name in RESERVED_COLUMNS or name in seen:
            yield Fault(1, "column-name", f"{one_line(repr(name), 60)} again")
        elif not name or not name.isprintable() or name.strip() != name or set(name) & set('",'):
            yield Fault(1, "column-name", one_line(repr(name), 60))
        seen.add(name)


def split_lines(text: bytes) -> tuple[list[bytes], list[Fault]]:
    """Return the whole lines of a file without their ends, and the faults of the ends: torn or endless lines."""
    lines = text.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    tail = lines.pop()
    faults = []
    if len(text) > MAX_LINE_BYTES:
        for number, line in enumerate([*lines, tail], start=1):
            if len(line) > MAX_LINE_BYTES:
                return lines[: number - 1], [Fault(number, "long-line", f"{len(line):,} bytes")]
    if tail:
        faults.append(Fault(len(lines) + 1, "torn-line", f"{one_line(repr(tail), 60)} at the end"))
    return [line.removesuffix(b"\r") for line in lines], faults


def parse_measurements(text: bytes) -> MeasurementTable:
    """Return the rows of a ``measurements.csv``, read line by line, and all its faults."""
    lines, faults = split_lines(text)
    if not lines:
        return MeasurementTable((), [], [], faults or [Fault(1, "missing-column", "an empty file")])
    metrics, header_faults = parse_header(lines[0])
    faults += header_faults
    if header_faults:
        return MeasurementTable((), [], [], faults)
    if not faults and (plain := _parse_plain(text, lines[1:], len(metrics))) is not None:
        return MeasurementTable(metrics, *plain, [])
    steps: list[int] = []
    rows: list[list[float | None]] = []
    grown: list[int] = []  # like steps, but continued behind a line that cannot be read, to find every fault
    sound = True
    for number, line in enumerate(lines[1:], start=2):
        row, row_faults = _parse_row(line, len(metrics), number)
        sound = sound and row is not None
        if row is not None:
            step, cells = row
            if grown and step <= grown[-1]:
                twice = grown[bisect_left(grown, step)] == step
                rule = "duplicate-step" if twice else "step-order"
                row_faults = [Fault(number, rule, f"step {step} after step {grown[-1]}")]
            else:
                grown.append(step)
                if sound:
                    steps.append(step)
                    rows.append(cells)
        faults += row_faults
    faults.sort(key=lambda fault: fault.line or 0)
    columns: list[list[float | None]] = [list(column) for column in zip(*rows, strict=True)]
    return MeasurementTable(metrics, steps, columns or [[] for _ in metrics], faults)


def _parse_plain(text: bytes, lines: Sequence[bytes], width: int) -> tuple[list[int], list[list[float | None]]] | None:
    """Return the steps and columns of a file of finite numbers without a fault, many times as fast; else None.

    Of texts made of these characters alone, ``float`` accepts exactly those that `_CELL` does.
    """
    if text[text.find(b"\n") :].translate(None, _PLAIN):
        return None
    rows = [line.split(b",") for line in lines]
    if not rows or any(len(row) != width + 1 for row in rows):
        return None
    numbers, *columns = zip(*rows, strict=True)
    if not all(number.isdigit() and len(number) <= _PLAIN_DIGITS for number in numbers):
        return None
    steps = [int(number) for number in numbers]
    if any(later <= earlier for earlier, later in pairwise(steps)):
        return None
    try:
        values = [[float(cell) if cell else None for cell in column] for column in columns]
    except ValueError:
        return None
    if any(math.isinf(value) for column in values for value in column if value is not None):
        return None
    return steps, values


def _parse_row(line: bytes, width: int, number: int) -> tuple[tuple[int, list[float | None]] | None, list[Fault]]:
    try:
        first, *cells = line.decode("utf-8").split(",")
    except UnicodeDecodeError as error:
        return None, [Fault(number, "not-utf8", one_line(error))]
    faults = []
    if _STEP.fullmatch(first) is None or float(first) > MAX_WHOLE:
        faults.append(Fault(number, "bad-step", one_line(repr(first), 60)))
    if len(cells) != width:
        faults.append(Fault(number, "cell-count", f"{len(cells) + 1} cells for {width + 1} columns"))
    wrong = [cell for cell in cells if cell and (_CELL.fullmatch(cell) is None or _overflows(cell))]
    faults += [Fault(number, "non-numeric", one_line(repr(cell), 60)) for cell in wrong]
    if faults:
        return None, faults
    return (int(first.partition(".")[0]), [float(cell) if cell else None for cell in cells]), []


def _overflows(cell: str) -> bool:
    """True if a cell is written as a number, and larger than any."""
    return math.isinf(float(cell)) and "n" not in cell.lower()
