"""The journal of a running trial: its measurements so far, a line each, in a form that survives a kill.

Each line is a CRC-32 in hexadecimal, a blank, and a text. The first text names the trial that the journal belongs to;
the others are those that will stand in ``measurements.csv``, and their checksums start from that of the first: a line
of another trial's journal is as wrong here as a torn one. Only the longest sound beginning counts: up to the first line
that is torn, altered, or whose step does not grow. The checksum is there because a lost write can leave a hole in
the middle of a file whose end is sound.

Journals of format 1 have no such first line, and plain checksums; they are read, and written anew when next used.
"""

import zlib
from dataclasses import dataclass

from batchscale.records.rules import Fault
from batchscale.records.tree.measurements import parse_header, parse_measurements
from batchscale.spec.workload_name import WorkloadName

_OWNER_MARK = "# "
_UNKNOWN_HASH = "-"


@dataclass(frozen=True)
class JournalOwner:
    """The trial that a journal belongs to; ``spec_hash`` distinguishes experiments, if the study has one."""

    workload: WorkloadName
    batch_size: int
    trial_id: int
    spec_hash: str | None = None

    def __str__(self) -> str:
        return f"{self.workload}/{self.batch_size}/{self.trial_id} {self.spec_hash or _UNKNOWN_HASH}"

    def is_named_by(self, text: str) -> bool:
        """True if the first line of a journal names this trial."""
        path, _, spec_hash = text.rpartition(" ")
        own_path, _, own_hash = str(self).rpartition(" ")
        return path == own_path and (spec_hash == own_hash or _UNKNOWN_HASH in (spec_hash, own_hash))


@dataclass(frozen=True)
class JournalText:
    """The sound beginning of a journal: its lines, the steps of the rows, and the number of bytes behind it.

    ``owner`` is the trial that it names; None for a journal of format 1, or one that is not on disk.
    """

    lines: tuple[str, ...]
    steps: tuple[int, ...]
    num_dropped_bytes: int
    owner: str | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the rows."""
        return tuple(self.lines[0].split(",")[1:]) if self.lines else ()

    @property
    def last_step(self) -> int:
        """The last step with a row, -1 if there is none."""
        return self.steps[-1] if self.steps else -1

    def cut(self, step: int) -> "JournalText":
        """Return the journal without the rows behind ``step``."""
        steps = tuple(number for number in self.steps if number <= step)
        return JournalText(self.lines[: 1 + len(steps)], steps, 0, self.owner)

    def to_csv(self) -> bytes:
        """Return the bytes of a ``measurements.csv``."""
        return "".join(f"{line}\n" for line in self.lines or ("step",)).encode()

    def encode(self, owner: str) -> bytes:
        """Return the bytes of the journal of this trial."""
        key = line_key(owner)
        return encode_line(_OWNER_MARK + owner) + b"".join(encode_line(line, key) for line in self.lines)


def line_key(owner: str | None) -> int:
    """Return the start value of the checksums of a journal's lines."""
    return 0 if owner is None else zlib.crc32(owner.encode())


def encode_line(text: str, key: int = 0) -> bytes:
    r"""Return one line of a journal.

    >>> encode_line("10,0.5")
    b'4cfef534 10,0.5\n'
    """
    data = text.encode()
    return b"%08x %s\n" % (zlib.crc32(data, key), data)


def decode_journal(data: bytes) -> JournalText:
    """Return the sound beginning of a journal."""
    owner, end = _decode_owner(data)
    key = line_key(owner)
    lines: list[str] = []
    steps: list[int] = []
    width = 0
    while (stop := data.find(b"\n", end)) >= 0:
        text = _decode_line(data[end:stop], key)
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
    return JournalText(tuple(lines), tuple(steps), len(data) - end, owner)


def journal_of_csv(text: bytes) -> tuple[JournalText, list[Fault]]:
    """Return the journal with the rows of a sound ``measurements.csv``, or an empty one and the file's faults."""
    table = parse_measurements(text)
    if table.faults:
        return JournalText((), (), 0), table.faults
    lines = [line.rstrip("\r") for line in text.decode("utf-8-sig").split("\n")[:-1]]
    return JournalText(tuple(lines), tuple(table.steps), 0), []


def _decode_owner(data: bytes) -> tuple[str | None, int]:
    """Return the trial that the first line names, and the start of the second; None and 0 for format 1."""
    stop = data.find(b"\n")
    text = _decode_line(data[:stop], 0) if stop >= 0 else None
    if text is None or not text.startswith(_OWNER_MARK):
        return None, 0
    return text.removeprefix(_OWNER_MARK), stop + 1


def _decode_line(line: bytes, key: int) -> str | None:
    mark, _, data = line.partition(b" ")
    if mark != b"%08x" % zlib.crc32(data, key):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
