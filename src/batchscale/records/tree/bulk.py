"""Many ``measurements.csv`` at once: the bytes of files with the same columns are joined and parsed together.

Parsing 500 joined files takes a tenth of the time of parsing them one by one. A file that is not entirely sound is
found out by cheap counts over the joined bytes, or by their failing to parse, and is then read line by line.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from batchscale.records.model import MAX_WHOLE
from batchscale.records.rules import Fault
from batchscale.records.tree.blocks import CsvBlock, join_blocks
from batchscale.records.tree.layout import MAX_LINE_BYTES
from batchscale.records.tree.measurements import BYTE_ORDER_MARK, parse_header, parse_measurements

_PLAIN = b"0123456789.,+-eE\nnNaAiIfFtTyY"  # every byte of a sound body: no blanks, quotes, NUL or carriage returns
_JOIN_BYTES = 32 * 2**20
_FIRST, _LAST, _LINE_END = b"+9\n"  # + , - . / and the digits have codes from the first to the last
_SCANNED = 2**17  # bytes at a time: what is made of them on the way stays near the processor

OnFaults = Callable[[int, int, list[Fault]], None]


@dataclass(frozen=True)
class _File:
    """A file whose body begins at ``start``."""

    batch_size: int
    trial_id: int
    text: bytes
    start: int


@dataclass
class MeasurementBatch:
    """Collects the measurement files of one workload and turns them into a block.

    ``on_faults(batch_size, trial_id, faults)`` hears of every file that is not sound; what is sound of it is kept.
    """

    on_faults: OnFaults
    _blocks: list[CsvBlock] = field(default_factory=list)
    _waiting: dict[bytes, list[_File]] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, batch_size: int, trial_id: int, text: bytes) -> None:
        """One more file."""
        plain = text.replace(b"\r\n", b"\n") if b"\r" in text else text
        plain = plain.removeprefix(BYTE_ORDER_MARK)
        end = plain.find(b"\n")
        if end < 0 or not plain.endswith(b"\n") or not _has_short_lines(plain):
            self._add_carefully(batch_size, trial_id, text)
            return
        self._waiting.setdefault(plain[:end], []).append(_File(batch_size, trial_id, plain, end + 1))
        self._bytes += len(plain)
        if self._bytes > _JOIN_BYTES:
            self._flush()

    def take(self) -> CsvBlock:
        """The rows of all files added so far, ordered; the batch is empty afterwards."""
        self._flush()
        blocks, self._blocks = self._blocks, []
        return join_blocks(blocks)

    def _flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for header, files in waiting.items():
            block = _parse_joined(header, files)
            if block is not None:
                self._blocks.append(block)
                continue
            for file in files:
                alone = _parse_joined(header, [file])
                if alone is None:
                    self._add_carefully(file.batch_size, file.trial_id, file.text)
                else:
                    self._blocks.append(alone)

    def _add_carefully(self, batch_size: int, trial_id: int, text: bytes) -> None:
        table = parse_measurements(text)
        if table.faults:
            self.on_faults(batch_size, trial_id, table.faults)
        self._blocks.append(CsvBlock(table.to_frame(), [(batch_size, trial_id, len(table.steps))]))


def read_measurement_files(files: Iterable[tuple[int, int, bytes]], on_faults: OnFaults) -> pl.DataFrame:
    """The rows of many files, each given as batch size, trial id and bytes; sorted by batch size, trial id, step."""
    batch = MeasurementBatch(on_faults)
    for batch_size, trial_id, text in files:
        batch.add(batch_size, trial_id, text)
    return batch.take().labelled()


def _has_short_lines(text: bytes) -> bool:
    return len(text) <= MAX_LINE_BYTES or max(map(len, text.split(b"\n"))) <= MAX_LINE_BYTES


def _is_plain(header: bytes, body: bytes, lines: int) -> bool:
    """Whether the body can only be sound, or fail to parse, or have steps that do not grow: never be misread."""
    return _count(body, b",") == lines * header.count(b",") and b"/" not in body and _has_plain_bytes(body)


def _has_plain_bytes(body: bytes) -> bool:
    """Whether there are only bytes of `_PLAIN`, and slashes, whose code lies among theirs.

    As fast as one look at each byte, but NumPy lets other threads work meanwhile.
    """
    codes = np.frombuffer(body, np.uint8)
    for start in range(0, len(codes), _SCANNED):
        piece = codes[start : start + _SCANNED]
        usual = (piece - _FIRST) <= _LAST - _FIRST  # what lies before the first is large: codes have no sign
        usual |= piece == _LINE_END
        if piece[~usual].tobytes().translate(None, _PLAIN):
            return False
    return True


def _count(text: bytes, byte: bytes, start: int = 0) -> int:
    """How often a byte stands in a text from ``start`` on; faster than ``bytes.count`` where it is frequent."""
    return int(np.count_nonzero(np.frombuffer(text, np.uint8, offset=start) == ord(byte))) if len(text) > start else 0


def _parse_joined(header: bytes, files: list[_File]) -> CsvBlock | None:
    metrics, faults = parse_header(header)
    if faults:
        return None
    schema = {"step": pl.Int64(), **{name: pl.Float64() for name in metrics}}
    runs = [(file.batch_size, file.trial_id, _count(file.text, b"\n", file.start)) for file in files]
    body = b"".join([memoryview(file.text)[file.start :] for file in files])
    if not body:
        return CsvBlock(pl.DataFrame(schema=schema), runs)
    if not _is_plain(header, body, sum(rows for *_, rows in runs)):
        return None
    try:
        frame = pl.read_csv(body, has_header=False, schema=schema, quote_char=None)
    except PolarsError:
        return None
    block = CsvBlock(frame, runs)
    return block if _is_sound(block) and not _overflows(frame, body) else None


def _is_sound(block: CsvBlock) -> bool:
    """Whether every line became a row and the steps of each trial grow."""
    ends = np.cumsum([rows for *_, rows in block.runs])
    steps = block.frame["step"]
    if block.frame.height != ends[-1] or steps.null_count():
        return False
    numbers = steps.to_numpy()
    grows = np.diff(numbers) > 0
    between = ends[(ends > 0) & (ends < len(numbers))]
    grows[between - 1] = True  # from the last step of one trial to the first of the next
    return bool(grows.all()) and bool(numbers.min() >= 0) and bool(numbers.max() <= MAX_WHOLE)


def _overflows(frame: pl.DataFrame, body: bytes) -> bool:
    """Whether some value is infinite that is not written so: a number larger than any."""
    infinite = int(frame.select(pl.sum_horizontal(pl.exclude("step").is_infinite().sum(), pl.lit(0))).item())
    return bool(infinite) and infinite != body.lower().count(b"inf")
