"""The journal of a running trial: its measurements so far, a line each, in a form that no kill can make lie.

Each line is the CRC-32 of its text in hexadecimal, a blank, and the text that will stand in ``measurements.csv``. What
counts is the longest sound beginning: up to the first line that is torn, altered, or whose step does not grow. The
checksum is there because a lost write can leave a hole in the middle of a file whose end is sound.
"""

import zlib
from dataclasses import dataclass

from batchscale.records.rules import Fault
from batchscale.records.tree.measurements import parse_header, parse_measurements


@dataclass(frozen=True)
class JournalText:
    """The sound beginning of a journal: its lines, the steps of the rows, and how many bytes are behind it."""

    lines: tuple[str, ...]
    steps: tuple[int, ...]
    num_dropped_bytes: int

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the rows."""
        return tuple(self.lines[0].split(",")[1:]) if self.lines else ()

    @property
    def last_step(self) -> int:
        """The last step with a row, -1 if there is none."""
        return self.steps[-1] if self.steps else -1

    def cut(self, step: int) -> "JournalText":
        """The same without the rows behind ``step``."""
        kept = tuple(s for s in self.steps if s <= step)
        return JournalText(self.lines[: 1 + len(kept)], kept, 0)

    def to_csv(self) -> bytes:
        """The bytes of a ``measurements.csv``."""
        return "".join(f"{line}\n" for line in self.lines or ("step",)).encode()

    def encode(self) -> bytes:
        """The bytes of a journal."""
        return b"".join(map(encode_line, self.lines))


def encode_line(text: str) -> bytes:
    r"""One line of a journal.

    >>> encode_line("10,0.5")
    b'4cfef534 10,0.5\n'
    """
    data = text.encode()
    return b"%08x %s\n" % (zlib.crc32(data), data)


def decode_journal(data: bytes) -> JournalText:
    """The sound beginning of a journal's bytes."""
    lines: list[str] = []
    steps: list[int] = []
    end = 0
    width = 0
    while (stop := data.find(b"\n", end)) >= 0:
        text = _decode_line(data[end:stop])
        if text is None:
            break
        if not lines:
            metrics, faults = parse_header(text.encode())
            if faults:
                break
            width = len(metrics)
        else:
            step = text.partition(",")[0]
            if not step.isdecimal() or text.count(",") != width or (steps and int(step) <= steps[-1]):
                break
            steps.append(int(step))
        lines.append(text)
        end = stop + 1
    return JournalText(tuple(lines), tuple(steps), len(data) - end)


def journal_of_csv(text: bytes) -> tuple[JournalText, list[Fault]]:
    """The journal that the sound rows of a ``measurements.csv`` make, and what is wrong with the file."""
    table = parse_measurements(text)
    if table.faults:
        return JournalText((), (), 0), table.faults
    lines = [line.rstrip("\r") for line in text.decode("utf-8-sig").split("\n")[:-1]]
    return JournalText(tuple(lines), tuple(table.steps), 0), []


def _decode_line(line: bytes) -> str | None:
    mark, _, data = line.partition(b" ")
    if mark != b"%08x" % zlib.crc32(data):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
