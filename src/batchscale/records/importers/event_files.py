"""A small reader of TensorBoard's event files: TFRecord framing with checksums, and the protobuf fields of scalars.

It reads what was written before a file was cut off or damaged, skips records whose checksum is wrong, and never trusts
a length. Images, graphs and other large records are passed over.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAX_FILE_BYTES = 8 * 2**30
MAX_SCALAR_BYTES = 2**16
"""A record with scalars is small; larger ones hold images or graphs."""

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8
_FLOAT, _DOUBLE, _INT32, _INT64, _BFLOAT16, _HALF = 1, 2, 3, 9, 14, 19
_CONTENT = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q", _HALF: "<e"}


def _make_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_TABLE = _make_table()
_TABLE_LIST = _TABLE.tolist()


def masked_checksum(data: bytes) -> int:
    """Return the masked CRC-32C of TFRecord files.

    >>> hex(masked_checksum(b"123456789"))  # CRC-32C e3069283, rotated, plus a constant
    '0xc78ab0e5'
    """
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE_LIST[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + _MASK_DELTA) & 0xFFFFFFFF


@dataclass
class EventFile:
    """The scalars of a file in their order, its metaparameters, the status of its session, and what was damaged."""

    scalars: list[tuple[str, int, float]] = field(default_factory=list)
    hparams: dict[str, float | str] = field(default_factory=dict)
    session_status: int | None = None
    damaged: int = 0
    cut_off: bool = False


def is_event_file(path: Path) -> bool:
    """True if a file has the name of an event file and begins with a sound record, or is empty."""
    if "tfevents" not in path.name or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    return not head or (len(head) == _HEADER.size and _HEADER.unpack(head)[1] == masked_checksum(head[:8]))


def read_event_file(path: Path) -> EventFile:
    """Return the scalars of an event file, up to the place where it is cut off or damaged."""
    result = EventFile()
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ValueError(f"must have at most {MAX_FILE_BYTES:,} bytes. Found {size:,}")
    if not size:
        return result
    data = np.memmap(path, dtype=np.uint8, mode="r")
    records = list(_walk(data, result))
    sound = _verify(data, records)
    for (start, length), is_sound in zip(records, sound, strict=True):
        if not is_sound:
            result.damaged += 1
            continue
        try:
            _read_event(data[start : start + length].tobytes(), result)
        except (ValueError, struct.error, IndexError):
            result.damaged += 1
    return result


def _walk(data: npt.NDArray[np.uint8], result: EventFile) -> Iterator[tuple[int, int]]:
    """Yield the start and length of every record that may have scalars; stop where the framing ends."""
    at, size = 0, len(data)
    while at < size:
        head = data[at : at + _HEADER.size].tobytes()
        if len(head) < _HEADER.size:
            result.cut_off = True
            return
        length, checksum = _HEADER.unpack(head)
        if masked_checksum(head[:8]) != checksum or at + _HEADER.size + length + _CHECKSUM.size > size:
            result.cut_off = True
            return
        if length <= MAX_SCALAR_BYTES:
            yield at + _HEADER.size, length
        at += _HEADER.size + length + _CHECKSUM.size


def _verify(data: npt.NDArray[np.uint8], records: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Return for each record if its checksum holds; those of one length are computed together."""
    sound = np.zeros(len(records), dtype=bool)
    if not records:
        return sound
    starts, lengths = np.array(records, dtype=np.int64).T
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        for part in np.array_split(rows, max(1, len(rows) * (int(length) + 4) // 2**26)):
            block = data[starts[part][:, None] + np.arange(length + 4)]
            value = np.full(len(part), 0xFFFFFFFF, dtype=np.uint32)
            for column in range(int(length)):
                value = _TABLE[(value ^ block[:, column]) & 0xFF] ^ (value >> np.uint32(8))
            value = ~value
            rotated = (value >> np.uint32(15)) | (value << np.uint32(17))
            stored = np.ascontiguousarray(block[:, int(length) :]).view("<u4")[:, 0]
            sound[part] = (rotated + np.uint32(_MASK_DELTA)) == stored
    return sound


# --- protobuf ------------------------------------------------------------------------------------------------------


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field: whole numbers of varints, the bytes of all others.

    Raises:
        ValueError: the bytes are no protobuf message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("a field of an unknown kind")
        if length > len(data) - at:
            raise ValueError("a field longer than its message")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number that does not end")


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number in the place of a message")
    return value


def _read_event(data: bytes, result: EventFile) -> None:
    step, summaries = 0, []
    for number, value in fields(data):
        if number == 2 and isinstance(value, int):
            step = value - 2**64 if value >= 2**63 else value
        elif number == 5:
            summaries.append(_as_bytes(value))
    for summary in summaries:
        for number, value in fields(summary):
            if number == 1:
                _read_value(_as_bytes(value), step, result)


def _read_value(data: bytes, step: int, result: EventFile) -> None:
    tag, scalar, metadata = "", None, b""
    for number, value in fields(data):
        if number == 1:
            tag = _as_bytes(value).decode("utf-8", "replace")
        elif number == 2:
            scalar = float(struct.unpack("<f", _as_bytes(value))[0])
        elif number == 8:
            scalar = _read_tensor(_as_bytes(value))
        elif number == 9:
            metadata = _as_bytes(value)
    if tag.startswith("_hparams_/"):
        _read_hparams(metadata, result)
    elif scalar is not None:
        result.scalars.append((tag, step, scalar))


def _read_tensor(data: bytes) -> float | None:
    """Return the number of a tensor that holds exactly one, else None."""
    kind, content, packed = 0, b"", b""
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4:
            content = _as_bytes(value)
        elif number in (5, 6):
            packed = packed + _as_bytes(value)
        elif number in (7, 10, 13) and kind in (_INT32, _INT64, _HALF, _BFLOAT16):
            return _read_whole(kind, value)
    raw = content or packed
    form = _CONTENT.get(kind)
    if kind == _BFLOAT16 and len(raw) == 2:
        return float(struct.unpack("<f", b"\0\0" + raw)[0])
    if form is None or len(raw) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, raw)[0])


def _read_whole(kind: int, value: int | bytes) -> float | None:
    """Return the only number of a packed or single varint; halves are stored as the bits of whole numbers."""
    number = value
    if isinstance(value, bytes):
        number, end = _varint(value, 0)
        if end != len(value):
            return None
    assert isinstance(number, int)
    if kind == _HALF:
        return float(struct.unpack("<e", struct.pack("<H", number & 0xFFFF))[0])
    if kind == _BFLOAT16:
        return float(struct.unpack("<f", b"\0\0" + struct.pack("<H", number & 0xFFFF))[0])
    return float(number - 2**64 if number >= 2**63 else number)


def _read_hparams(metadata: bytes, result: EventFile) -> None:
    """Read the hparams plug-in's data: the metaparameters of a session and its status at the end."""
    for number, plugin in fields(metadata):
        if number != 1:
            continue
        for inner, content in fields(_as_bytes(plugin)):
            if inner != 2:
                continue
            for part, value in fields(_as_bytes(content)):
                if part == 3:
                    _read_session_start(_as_bytes(value), result)
                elif part == 4:
                    statuses = [status for name, status in fields(_as_bytes(value)) if name == 1]
                    result.session_status = next((each for each in statuses if isinstance(each, int)), None)


def _read_session_start(data: bytes, result: EventFile) -> None:
    for number, entry in fields(data):
        if number != 1:
            continue
        name: str = ""
        value: float | str | None = None
        for part, item in fields(_as_bytes(entry)):
            if part == 1:
                name = _as_bytes(item).decode("utf-8", "replace")
            elif part == 2:
                for kind, content in fields(_as_bytes(item)):
                    if kind == 2:
                        value = float(struct.unpack("<d", _as_bytes(content))[0])
                    elif kind == 3:
                        value = _as_bytes(content).decode("utf-8", "replace")
                    elif kind == 4:
                        value = float(bool(content))
        if name and value is not None:
            result.hparams[name] = value
