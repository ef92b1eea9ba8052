"""Messages between the processes of a cluster: a kind, a tag, bytes. Framed, so that none is read in part."""

import contextlib
import json
import socket
import struct
import threading
import time
from dataclasses import dataclass
from enum import IntEnum

_HEADER = struct.Struct(">BBQ")
MAX_HELLO_BYTES = 2**16
MAX_BYTES = 2**40


class Kind(IntEnum):
    """What a message is for."""

    HELLO = 1
    GO = 2
    REFUSED = 3
    BEAT = 4
    PART = 5
    WHOLE = 6
    LOST = 7
    FAILED = 8
    CHALLENGE = 9
    MAIL = 10


@dataclass(frozen=True)
class Frame:
    """A message. ``tag`` says at which point of its work the sender is."""

    kind: Kind
    payload: bytes = b""
    tag: str = ""


class Channel:
    """One connection; several threads may send, one reads. ``heard_at`` is when anything came last."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._sending = threading.Lock()
        self.heard_at = time.monotonic()

    def send(self, frame: Frame, wait: bool = True) -> bool:
        """Send a message; without ``wait`` only if no other thread is sending. False if it was not sent."""
        if not self._sending.acquire(blocking=wait):
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
        """The next message.

        Raises:
            EOFError: the other side has closed.
            ValueError: this is not one of our messages.
        """
        kind, tag_length, length = _HEADER.unpack(self._exactly(_HEADER.size))
        if length > limit:
            raise ValueError(f"a message of {length} bytes")
        tag = self._exactly(tag_length).decode()
        return Frame(Kind(kind), self._exactly(length), tag)

    def hang_up(self) -> None:
        """End the connection for both sides: whoever reads or writes at it, here or there, finds it closed."""
        with contextlib.suppress(OSError):  # the other side was faster
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(2**20, count - len(parts)))
            if not part:
                raise EOFError
            parts += part
            self.heard_at = time.monotonic()
        return bytes(parts)


def pack_parts(parts: list[bytes]) -> bytes:
    """Several byte strings as one."""
    lengths = json.dumps([len(part) for part in parts]).encode()
    return struct.pack(">I", len(lengths)) + lengths + b"".join(parts)


def unpack_parts(data: bytes) -> list[bytes]:
    """The byte strings that `pack_parts` joined."""
    (size,) = struct.unpack_from(">I", data)
    parts, start = [], 4 + size
    for length in json.loads(data[4:start]):
        parts.append(data[start : start + length])
        start += length
    return parts
