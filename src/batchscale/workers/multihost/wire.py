"""The connection between two processes of a cluster: framed messages of a kind, a tag and bytes, never read in part."""

import json
import socket
import struct
import threading
import time
from dataclasses import dataclass
from enum import IntEnum

_HEADER = struct.Struct(">BBQ")
MAX_HELLO_BYTES = 2**20
MAX_BYTES = 2**40


class Kind(IntEnum):
    """The purpose of a message."""

    HELLO = 1
    WELCOME = 2
    REJECTED = 3
    HEARTBEAT = 4
    PART = 5
    WHOLE = 6
    LOST = 7
    FAILED = 8


@dataclass(frozen=True)
class Frame:
    """A message. ``tag`` names the point in the program that the sender has reached."""

    kind: Kind
    payload: bytes = b""
    tag: str = ""


class Connection:
    """A connection that several threads may send through and one reads from.

    ``received_at`` is the time of the last byte.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._sending = threading.Lock()
        self.received_at = time.monotonic()

    def send(self, frame: Frame, wait_s: float | None = None) -> bool:
        """Send a message, if no other thread is still sending after ``wait_s``. False if it was not sent."""
        if not self._sending.acquire(timeout=-1 if wait_s is None else wait_s):
            return False
        try:
            tag = frame.tag.encode()
            self.socket.sendall(_HEADER.pack(frame.kind, len(tag), len(frame.payload)) + tag)
            if frame.payload:
                self.socket.sendall(frame.payload)
        finally:
            self._sending.release()
        return True

    def receive(self, limit: int = MAX_BYTES) -> Frame:
        """Return the next message.

        Raises:
            EOFError: the other side has closed.
            ValueError: this is not one of our messages.
        """
        kind, tag_length, length = _HEADER.unpack(self._read_exactly(_HEADER.size))
        if length > limit:
            raise ValueError(f"a message of {length} bytes")
        tag = self._read_exactly(tag_length).decode()
        return Frame(Kind(kind), self._read_exactly(length), tag)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _read_exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(2**20, count - len(parts)))
            if not part:
                raise EOFError
            parts += part
            self.received_at = time.monotonic()
        return bytes(parts)


def parse_frame(data: bytes | bytearray, limit: int) -> Frame | None:
    """Return the message that ``data`` is; None if some of it is still to come.

    Raises:
        ValueError: this is not one of our messages, or it is larger than ``limit``.
    """
    if len(data) < _HEADER.size:
        return None
    kind, tag_length, length = _HEADER.unpack_from(data)
    size = _HEADER.size + tag_length + length
    if length > limit or len(data) > size:
        raise ValueError(f"a message of {max(size, len(data))} bytes")
    Kind(kind)
    if len(data) < size:
        return None
    start = _HEADER.size + tag_length
    return Frame(Kind(kind), bytes(data[start:]), bytes(data[_HEADER.size : start]).decode())


def pack_parts(parts: list[bytes]) -> bytes:
    """Join several byte strings into one."""
    lengths = json.dumps([len(part) for part in parts]).encode()
    return struct.pack(">I", len(lengths)) + lengths + b"".join(parts)


def unpack_parts(data: bytes) -> list[bytes]:
    """Return the byte strings that `pack_parts` joined."""
    (size,) = struct.unpack_from(">I", data)
    parts, start = [], 4 + size
    for length in json.loads(data[4:start]):
        parts.append(data[start : start + length])
        start += length
    return parts
