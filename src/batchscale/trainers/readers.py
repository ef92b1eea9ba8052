"""Where reports come from: the protocol's own file, printed lines, or a table that the script writes anyway.

Every reader gives the lines of the protocol (docs/trainers.md) as plain mappings, each once, in order. Nothing here
trusts what it reads; what a line must say is checked in ``reports``.
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

MAX_LINE_BYTES = 1_000_000
MAX_TABLE_BYTES = 64 * 2**20
NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|NaN|inf|Infinity)"

Line = Mapping[str, Any]


class LineTail:
    """The lines that were added to a file; the last one only when it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._rest = b""

    def poll(self) -> list[bytes]:
        """The whole lines since the last call."""
        try:
            size = self._path.stat().st_size
            if size == self._place:
                return []
            if size < self._place:  # written anew
                self._place, self._rest = 0, b""
            with self._path.open("rb") as file:
                file.seek(self._place)
                data = file.read(MAX_LINE_BYTES)
        except OSError:
            return []
        self._place += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= MAX_LINE_BYTES else b""
        return [line for line in lines if line.strip() and len(line) <= MAX_LINE_BYTES]


class Reader(ABC):
    """Gives reports. ``unread`` counts lines that could not be understood."""

    def __init__(self) -> None:
        self.unread = 0

    @abstractmethod
    def poll(self) -> list[Line]:
        """What was reported since the last call."""

    def _parse(self, line: bytes) -> Line | None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.unread += 1
            return None
        return found


class ProtocolReader(Reader):
    """``reports.jsonl``."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._tail = LineTail(path)

    def poll(self) -> list[Line]:
        """The lines since the last call."""
        return [line for line in map(self._parse, self._tail.poll()) if line is not None]


class PatternReader(Reader):
    """Printed lines that a pattern matches."""

    def __init__(self, path: Path, pattern: str) -> None:
        super().__init__()
        self._tail = LineTail(path)
        regex, self._names = compile_pattern(pattern)
        self._regex = re.compile(regex)

    def poll(self) -> list[Line]:
        """The measurements since the last call."""
        found: list[Line] = []
        for line in self._tail.poll():
            match = self._regex.search(line.decode(errors="replace"))
            if match is None:
                self.unread += 1
                continue
            values = {name: float(match[place]) for place, name in enumerate(self._names, 1)}
            found.append({"step": _to_step(values.pop("step")), "metrics": values})
        return found


class _Merging(Reader):
    """Measurements put together from lines of the same step; told once the goal's metric is among them."""

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


class JsonLinesReader(_Merging):
    """A file of JSON objects, one per line, with a step and numbers by name."""

    def __init__(self, path: Path, names: Mapping[str, str], goal: Goal) -> None:
        super().__init__(names, goal)
        self._tail = LineTail(path)

    def poll(self) -> list[Line]:
        """The measurements since the last call."""
        lines = [line for line in map(self._parse, self._tail.poll()) if line is not None]
        return [found for line in lines for found in self._merge(line)]


class CsvReader(_Merging):
    """A table with a header. Loggers that learn of a new column write the whole file anew: so it is read anew."""

    def __init__(self, path: Path, names: Mapping[str, str], goal: Goal) -> None:
        super().__init__(names, goal)
        self._path = path
        self._seen = (0, 0)
        self._told: dict[Any, Mapping[str, Any]] = {}

    def poll(self) -> list[Line]:
        """The measurements since the last call."""
        try:
            stat = self._path.stat()
            if (stat.st_mtime_ns, stat.st_size) == self._seen or stat.st_size > MAX_TABLE_BYTES:
                return []
            text = self._path.read_bytes().decode("utf-8-sig", errors="replace")
        except OSError:
            return []
        self._seen = (stat.st_mtime_ns, stat.st_size)
        self._step = None
        whole = text[: text.rfind("\n") + 1]
        found = []
        for row in csv.DictReader(io.StringIO(whole)):
            cells = {n: _to_cell(v) for n, v in row.items() if n and isinstance(v, str) and v.strip()}
            for line in self._merge(cells):
                if self._told.get(line["step"]) != line["metrics"]:
                    self._told[line["step"]] = line["metrics"]
                    found.append(line)
        return found


def make_reader(reports: ReportsSpec, path: Path, goal: Goal) -> Reader:
    """The reader of an attempt; ``path`` is the file that it reads."""
    if reports.source is ReportSource.PATTERN:
        return PatternReader(path, reports.text)
    if reports.source is ReportSource.CSV:
        return CsvReader(path, reports.names, goal)
    if reports.source is ReportSource.JSON_LINES:
        return JsonLinesReader(path, reports.names, goal)
    return ProtocolReader(path)


def compile_pattern(pattern: str) -> tuple[str, list[str]]:
    r"""The regular expression of a pattern, and the names of its groups in order.

    ``{step}`` and ``{split/metric}`` stand for numbers, ``{}`` for anything, a blank for any white space.

    >>> regex, names = compile_pattern("step {step}: {} error={val/error}")
    >>> names, re.search(regex, "step  100: loss=3 error=0.25").groups()
    (['step', 'val/error'], ('100', '0.25'))
    """
    names: list[str] = []
    parts: list[str] = []
    for piece in re.split(r"(\{[^{}]*\})", pattern):
        name = piece[1:-1] if piece.startswith("{") and piece.endswith("}") else None
        if name is None:
            parts += [r"\s+" if word.isspace() else re.escape(word) for word in re.split(r"(\s+)", piece) if word]
        elif name == "":
            parts.append(".*?")
        else:
            parts.append(rf"({NUMBER})")
            names.append(name)
    wrong = [name for name in names if name != "step" and "/" not in name]
    if names.count("step") != 1 or len(set(names)) != len(names) or wrong or len(names) < 2:
        raise SpecError(
            "trainer.reports.pattern has {step} once, each metric once as {split/metric}, and {} for what changes in "
            f'between: "step={{step}} val/loss={{val/loss}}". Found {one_line(repr(pattern))}.'
        )
    return "".join(parts), names


def _to_step(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _to_cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
