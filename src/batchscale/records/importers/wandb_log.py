"""Runs that W&B recorded offline: the whole history of each, from the log in its folder (``run-ID.wandb``).

A log is a sequence of protobuf records in blocks of 32 KiB, each piece with its checksum; a log that was cut off is
read up to there. Nothing is sampled, so this is the best way in.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.errors import RecordsError, one_line
from batchscale.formatting import count_text
from batchscale.records.importers.event_files import fields
from batchscale.records.importers.source import (
    MAX_ROWS,
    ImportedValue,
    Importer,
    ReadOptions,
    RunSource,
    SourceRun,
    flatten,
    to_number,
)
from batchscale.records.importers.tables import WANDB_STEP
from batchscale.records.importers.text_lines import require_size
from batchscale.records.model import Status
from batchscale.spec.untrusted_text import parse_json

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 2**15
MAX_LOG_BYTES = 4 * 2**30
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18


@dataclass
class _Log:
    run_id: str = ""
    name: str = ""
    project: str = ""
    values: dict[str, ImportedValue] = field(default_factory=dict)
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    rows: int = 0
    exit_code: int | None = None
    started: tuple[int, int] = (0, 0)
    damaged: bool = False

    def add_row(self, row: dict[str, float]) -> None:
        """Add a row of the history; a new column is empty before it."""
        for name in row:
            self.columns.setdefault(name, [None] * self.rows)
        for name, cells in self.columns.items():
            cells.append(row.get(name))
        self.rows += 1
        if self.rows > MAX_ROWS:
            raise RecordsError(f"A history must have at most {MAX_ROWS:,} rows. Found more.")

    def frame(self) -> pl.DataFrame:
        """Return the history."""
        return pl.DataFrame({name: pl.Series(cells, dtype=pl.Float64) for name, cells in self.columns.items()})


def _logs(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".wandb" else []
    files = [file for pattern in ("*.wandb", "*/*.wandb", "*/*/*.wandb") for file in path.glob(pattern)]
    return sorted(file for file in files if not file.parent.is_symlink())  # latest-run is a link to a run


def _matches(path: Path) -> bool:
    return bool(_logs(path))


def _read(path: Path, _options: ReadOptions) -> RunSource:
    logs = sorted((_read_log(file) for file in _logs(path)), key=lambda log: log.started)
    runs = [
        SourceRun(
            run_id=log.run_id,
            values=log.values,
            read=log.frame,
            name=log.name,
            group=log.project,
            status=Status.COMPLETE if log.exit_code == 0 else Status.INCOMPLETE,
            stop_reason=None if log.exit_code == 0 else "crashed" if log.exit_code is None else "failed",
            failure=None if log.exit_code == 0 else "W&B recorded no successful exit of the run.",
        )
        for log in logs
        if log.rows
    ]
    damaged = sum(log.damaged for log in logs)
    notices = (f"{count_text(damaged, 'log')} cut off or damaged: what came before is imported.",) if damaged else ()
    return RunSource("wandb", path, runs, WANDB_STEP, notices=notices)


def _read_log(path: Path) -> _Log:
    require_size(path, MAX_LOG_BYTES)
    data = path.read_bytes()
    log = _Log(run_id=one_line(path.stem.removeprefix("run-")))
    if not data.startswith(MAGIC):
        raise RecordsError(
            f"{one_line(path, 300)}: the log of a W&B run must begin with its mark. Found other bytes: it is "
            "damaged, or of another version. Export the run's history instead; docs/import.md has the script."
        )
    for record in _records(data, log):
        try:
            for number, value in fields(record):
                if isinstance(value, bytes):
                    _read_record(number, value, log)
        except (ValueError, struct.error):
            log.damaged = True
    return log


def _records(data: bytes, log: _Log) -> Iterator[bytes]:
    """Yield the records, joined from the pieces in the blocks; stop at the first piece that is not sound."""
    at, pieces = len(MAGIC), b""
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < _HEADER.size:
            at += left
            continue
        head = data[at : at + _HEADER.size]
        if len(head) < _HEADER.size:
            log.damaged = True
            return
        checksum, length, kind = _HEADER.unpack(head)
        piece = data[at + _HEADER.size : at + _HEADER.size + length]
        sound = len(piece) == length and kind in (_FULL, _FIRST, _MIDDLE, _LAST)
        if not sound or zlib.crc32(piece, zlib.crc32(bytes([kind]))) & 0xFFFFFFFF != checksum:
            log.damaged = True
            return
        at += _HEADER.size + length
        pieces = piece if kind in (_FULL, _FIRST) else pieces + piece
        if kind in (_FULL, _LAST):
            yield pieces


def _read_record(number: int, data: bytes, log: _Log) -> None:
    if number == _HISTORY:
        row: dict[str, float] = {}
        for part, value in fields(data):
            if part == 1 and isinstance(value, bytes):
                name, item = _read_item(value)
                row |= dict(_numbers(name, item))
            elif part == 2 and isinstance(value, bytes):
                steps = [step for inner, step in fields(value) if inner == 1 and isinstance(step, int)]
                row.setdefault(WANDB_STEP, float(steps[0]) if steps else 0.0)
        log.add_row(row)
    elif number == _CONFIG:
        _read_config(data, log)
    elif number == _RUN:
        texts = {part: value for part, value in fields(data) if isinstance(value, bytes)}
        log.run_id = _text(texts.get(1, b"")) or log.run_id
        log.project, log.name = _text(texts.get(3, b"")), _text(texts.get(8, b""))
        _read_config(texts.get(4, b""), log)
        stamp = {part: value for part, value in fields(texts.get(17, b"")) if isinstance(value, int)}
        log.started = (stamp.get(1, 0), stamp.get(2, 0))
    elif number == _EXIT:
        codes = [value for part, value in fields(data) if part == 1 and isinstance(value, int)]
        log.exit_code = codes[0] if codes else 0  # protobuf leaves out zeros


def _read_config(data: bytes, log: _Log) -> None:
    for part, update in fields(data):
        if part == 1 and isinstance(update, bytes):
            name, value = _read_item(update)
            if not name.startswith("_wandb"):
                log.values |= flatten({name: value})


def _read_item(data: bytes) -> tuple[str, Any]:
    """Return the name and the value of an item: JSON in older logs, a field for each kind in later ones."""
    name, nested, value = "", [], None
    for number, content in fields(data):
        if number == 1 and isinstance(content, bytes):
            name = _text(content)
        elif number == 2 and isinstance(content, bytes):
            nested.append(_text(content))
        elif number in (8, 16) and isinstance(content, bytes):
            value = parse_json(content)
        elif number == 4:
            value = bool(content)
        elif number == 5 and isinstance(content, int):
            value = content - 2**64 if content >= 2**63 else content
        elif number == 6 and isinstance(content, bytes):
            value = struct.unpack("<d", content)[0]
        elif number == 7 and isinstance(content, bytes):
            value = _text(content)
    return name or ".".join(nested), value


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(f"{name}.{key}", inner)
    elif not isinstance(value, list) and (number := to_number(value)) is not None:
        yield name, number


def _text(data: bytes) -> str:
    return one_line(data.decode("utf-8", "replace"))


IMPORTER = Importer("wandb", "W&B (offline runs)", _matches, _read)
