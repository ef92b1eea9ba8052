"""Readers of reports: from the protocol's own file, from printed lines, or from a table that the script writes anyway.

Every reader returns the lines of the protocol (docs/trainers.md) as plain mappings, each once, in order. Readers accept
anything; the content of a line is checked in ``reports``.
"""

import csv
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchscale.errors import SpecError, one_line
from batchscale.spec.goal import Goal
from batchscale.spec.trainer import ReportSource, ReportsSpec
from batchscale.trainers.supervisor import match_segments

MAX_LINE_BYTES = 1_000_000
MAX_TABLE_BYTES = 64 * 2**20
NUMBER = r"[+-]?(?:(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?|nan|NaN|inf|Infinity)"

Line = Mapping[str, Any]


class LineTail:
    """The lines that are appended to a file; the last one only when it is complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def poll(self) -> list[bytes]:
        """Return the complete lines since the last call."""
        try:
            size = self._path.stat().st_size
            if size == self._position:
                return []
            if size < self._position:  # replaced
                self._position, self._rest = 0, b""
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read(MAX_LINE_BYTES)
        except OSError:
            return []
        self._position += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= MAX_LINE_BYTES else b""
        return [line for line in lines if line.strip() and len(line) <= MAX_LINE_BYTES]


class Reader(ABC):
    """Returns reports. ``unread`` counts lines that could not be parsed."""

    def __init__(self) -> None:
        self.unread = 0

    @abstractmethod
    def poll(self) -> list[Line]:
        """Return the reports since the last call."""

    def _parse(self, line: bytes) -> Line | None:
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            report = None
        if not isinstance(report, dict):
            self.unread += 1
            return None
        return report


class ProtocolReader(Reader):
    """Reads ``reports.jsonl``."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._tail = LineTail(path)

    def poll(self) -> list[Line]:
        """Return the lines since the last call."""
        return [line for line in map(self._parse, self._tail.poll()) if line is not None]


class PatternReader(Reader):
    """Reads printed lines that a pattern matches."""

    def __init__(self, path: Path, pattern: str) -> None:
        super().__init__()
        self._tail = LineTail(path)
        segments, self._names = compile_pattern(pattern)
        self._segments = [re.compile(segment) for segment in segments]

    def poll(self) -> list[Line]:
        """Return the measurements since the last call."""
        reports: list[Line] = []
        for line in self._tail.poll():
            groups = match_segments(self._segments, line.decode(errors="replace"))
            if groups is None:
                self.unread += 1
                continue
            values = dict(zip(self._names, map(float, groups), strict=True))
            reports.append({"step": _to_step(values.pop("step")), "metrics": values})
        return reports


class _MergingReader(Reader):
    """Merges lines of the same step into a measurement, which is returned once it has the goal's metric."""

    def __init__(self, names: Mapping[str, str], goal: Goal) -> None:
        super().__init__()
        self._names, self._goal = names, goal
        self._step: Any = None
        self._values: dict[str, Any] = {}

    def _merge(self, cells: Mapping[str, Any]) -> list[Line]:
        values = {self._names.get(name, name): value for name, value in cells.items()}
        step = values.pop("step", None)
        if step is None:
            return []
        if step != self._step:
            self._step, self._values = step, {}
        before = dict(self._values)
        self._values |= {n: v for n, v in values.items() if "/" in str(n) and _is_number(v)}
        if self._goal.metric not in self._values or before == self._values:
            return []
        return [{"step": _to_step(step), "metrics": dict(self._values)}]


class JsonLinesReader(_MergingReader):
    """Reads a file of JSON objects, one per line, with a step and numbers by name."""

    def __init__(self, path: Path, names: Mapping[str, str], goal: Goal) -> None:
        super().__init__(names, goal)
        self._tail = LineTail(path)

    def poll(self) -> list[Line]:
        """Return the measurements since the last call."""
        lines = [line for line in map(self._parse, self._tail.poll()) if line is not None]
        return [report for line in lines for report in self._merge(line)]


class CsvReader(_MergingReader):
    """Reads a table with a header, as a whole: loggers rewrite the file when a column is added."""

    def __init__(self, path: Path, names: Mapping[str, str], goal: Goal) -> None:
        super().__init__(names, goal)
        self._path = path
        self._version = (0, 0)
        self._returned: dict[Any, Mapping[str, Any]] = {}

    def poll(self) -> list[Line]:
        """Return the measurements since the last call."""
        try:
            stat = self._path.stat()
            if (stat.st_mtime_ns, stat.st_size) == self._version or stat.st_size > MAX_TABLE_BYTES:
                return []
            text = self._path.read_bytes().decode("utf-8-sig", errors="replace")
        except OSError:
            return []
        self._version = (stat.st_mtime_ns, stat.st_size)
        self._step = None
        whole = text[: text.rfind("\n") + 1]
        reports = []
        for row in csv.DictReader(io.StringIO(whole)):
            cells = {n: _to_cell(v) for n, v in row.items() if n and isinstance(v, str) and v.strip()}
            for line in self._merge(cells):
                if self._returned.get(line["step"]) != line["metrics"]:
                    self._returned[line["step"]] = line["metrics"]
                    reports.append(line)
        return reports


def make_reader(reports: ReportsSpec, path: Path, goal: Goal) -> Reader:
    """Return the reader of an attempt; ``path`` is the file that it reads."""
    if reports.source is ReportSource.PATTERN:
        return PatternReader(path, reports.text)
    if reports.source is ReportSource.CSV:
        return CsvReader(path, reports.names, goal)
    if reports.source is ReportSource.JSON_LINES:
        return JsonLinesReader(path, reports.names, goal)
    return ProtocolReader(path)


def compile_pattern(pattern: str) -> tuple[list[str], list[str]]:
    r"""Return the regular expressions of a pattern's segments, which ``{}`` separates, and the names of their groups.

    ``{step}`` and ``{split/metric}`` stand for numbers, ``{}`` for anything, a blank for any white space. No segment
    can be matched in more than a few ways from a place on, so that searching takes time in proportion to the line.

    >>> segments, names = compile_pattern("step {step}: {} error={val/error}")
    >>> names, match_segments(list(map(re.compile, segments)), "step  100: loss=3 error=0.25")
    (['step', 'val/error'], ['100', '0.25'])
    """
    names: list[str] = []
    segments: list[str] = []
    for text in pattern.split("{}"):
        segment = ""
        pieces = [piece for piece in re.split(r"(\{[^{}]*\}|\s+)", text) if piece]
        for place, piece in enumerate(pieces):
            if piece.startswith("{") and piece.endswith("}"):
                segment += rf"({NUMBER})" if segment else rf"(?<![\d.])({NUMBER})"
                names.append(piece[1:-1])
            elif piece.isspace():
                is_at_gap = place in (0, len(pieces) - 1)  # then the gap takes the rest of the white space
                segment += r"\s" if is_at_gap else r"\s++"
            else:
                segment += re.escape(piece)
        segments.append(segment)
    wrong = [name for name in names if name != "step" and "/" not in name]
    if names.count("step") != 1 or len(set(names)) != len(names) or wrong or len(names) < 2:
        raise SpecError(
            "trainer.reports.pattern must have {step} once, each metric once as {split/metric}, and {} for any text "
            f'between: "step={{step}} val/loss={{val/loss}}". Found {one_line(repr(pattern))}.'
        )
    return [segment for segment in segments if segment], names


def _to_step(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _to_cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
