"""Many ``measurements.csv`` at once: the bytes of files with the same columns are joined and parsed together.

Parsing 500 joined files takes a tenth of the time of parsing them one by one. Cheap counts over the joined bytes, or a
failure to parse, detect a file that is not entirely sound; it is then read line by line. The result is a block: a frame
of steps and metrics, and the number of rows of each trial in it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from batchscale.records.frames import MEASUREMENT_SCHEMA
from batchscale.records.model import MAX_WHOLE
from batchscale.records.rules import Fault
from batchscale.records.tree.layout import MAX_LINE_BYTES
from batchscale.records.tree.measurements import BYTE_ORDER_MARK, parse_header, parse_measurements

_PLAIN = b"0123456789.,+-eE\nnNaAiIfFtTyY"  # every byte of a sound body: no blanks, quotes, NUL or carriage returns
_JOIN_BYTES = 32 * 2**20
_FIRST, _LAST, _LINE_END = b"+9\n"  # + , - . / and the digits have codes from the first to the last
_SCANNED = 2**17  # bytes at a time: intermediate arrays stay in the processor's cache

OnFaults = Callable[[int, int, list[Fault]], None]
RowRun = tuple[int, int, int]  # batch size, trial id, number of rows


@dataclass(frozen=True)
class CsvBlock:
    """The rows of the trials of ``runs``, one trial behind the other. Trials are moved as wholes."""

    frame: pl.DataFrame
    runs: Sequence[RowRun]

    def labelled(self) -> pl.DataFrame:
        """Return the frame with the columns ``batch_size`` and ``trial_id`` before the others."""
        sizes, trials, rows = np.array(self.runs, dtype=np.int64).reshape(-1, 3).T
        labels = [
            pl.Series("batch_size", np.repeat(sizes, rows), dtype=pl.Int64),
            pl.Series("trial_id", np.repeat(trials, rows), dtype=pl.Int64),
        ]
        return pl.DataFrame([*labels, *self.frame.get_columns()])

    def ordered(self, trials: set[tuple[int, int]] | None = None) -> "CsvBlock":
        """Return the trials by batch size and id; only those of ``trials``, if given."""
        starts = np.cumsum([0, *(rows for *_, rows in self.runs)])
        places = sorted(
            (run[0], run[1], place)
            for place, run in enumerate(self.runs)
            if trials is None or (run[0], run[1]) in trials
        )
        order = [place for *_, place in places]
        if order == list(range(len(self.runs))):
            return self
        runs = [self.runs[place] for place in order]
        rows = np.array([rows for *_, rows in runs], dtype=np.int64)
        index = np.arange(rows.sum()) + np.repeat(starts[order] - (np.cumsum(rows) - rows), rows)
        return CsvBlock(self.frame.select(pl.all().gather(index)), runs)


def join_blocks(blocks: Sequence[CsvBlock]) -> CsvBlock:
    """Join blocks into one ordered block; a metric that a block lacks is null there."""
    if not blocks:
        return CsvBlock(pl.DataFrame(schema={"step": MEASUREMENT_SCHEMA["step"]}), [])
    if len(blocks) == 1:
        return blocks[0].ordered()
    frames = [block.frame for block in blocks]
    same = all(frame.schema == frames[0].schema for frame in frames)
    joined = pl.concat(frames, how="vertical" if same else "diagonal_relaxed")
    return CsvBlock(joined, [run for block in blocks for run in block.runs]).ordered()


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

    ``on_faults(batch_size, trial_id, faults)`` is called for every file that is not sound; its sound rows are used.
    """

    on_faults: OnFaults
    _blocks: list[CsvBlock] = field(default_factory=list)
    _waiting: dict[bytes, list[_File]] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, batch_size: int, trial_id: int, text: bytes) -> None:
        """Add a file."""
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
        """Return the rows of all files added so far, ordered; the batch is empty afterwards."""
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
    """Return the rows of many files, given as batch size, trial id and bytes; sorted by batch size, trial id, step."""
    batch = MeasurementBatch(on_faults)
    for batch_size, trial_id, text in files:
        batch.add(batch_size, trial_id, text)
    return batch.take().labelled()


def _has_short_lines(text: bytes) -> bool:
    return len(text) <= MAX_LINE_BYTES or max(map(len, text.split(b"\n"))) <= MAX_LINE_BYTES


def _is_plain(header: bytes, body: bytes, lines: int) -> bool:
    """True if the body is sound, or fails to parse, or has steps that do not grow: it is never misread."""
    return _count(body, b",") == lines * header.count(b",") and b"/" not in body and _has_plain_bytes(body)


def _has_plain_bytes(body: bytes) -> bool:
    """True if there are only bytes of `_PLAIN`, and slashes, whose code lies among theirs.

    As fast as ``bytes.translate``, but NumPy lets other threads work meanwhile.
    """
    codes = np.frombuffer(body, np.uint8)
    for start in range(0, len(codes), _SCANNED):
        piece = codes[start : start + _SCANNED]
        usual = (piece - _FIRST) <= _LAST - _FIRST  # codes before the first wrap around to large ones
        usual |= piece == _LINE_END
        if piece[~usual].tobytes().translate(None, _PLAIN):
            return False
    return True


def _count(text: bytes, byte: bytes, start: int = 0) -> int:
    """Return how often a byte stands in a text from ``start`` on; faster than ``bytes.count`` for a frequent byte."""
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
    """True if every line became a row and the steps of each trial grow."""
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
    """True if a value is infinite that is not written so: a number larger than any."""
    infinite = int(frame.select(pl.sum_horizontal(pl.exclude("step").is_infinite().sum(), pl.lit(0))).item())
    return bool(infinite) and infinite != body.lower().count(b"inf")
