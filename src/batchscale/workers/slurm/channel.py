"""Messages between two processes through a file that both see: one appends, the other reads.

Network file systems promise that a process that opens a file after another has closed it sees what was written. So
every message is one open, append and close, and every read opens the file anew: no new names that a client's cache of
folders might hide, no times, no order of listings. A message carries its number and a checksum; one that is not whole
yet is read again later. A long file continues in another one, and the reader removes what it has read.
"""

import os
import threading
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from batchscale.workers.messages import REPLIES, Codec, Reply

MAX_FILE_BYTES = 8_000_000
MIN_POLL_S, MAX_POLL_S = 0.01, 0.5
POLL_SHARE = 0.1
_NEXT_FILE = b""


class ExitReason(StrEnum):
    """The reason of a worker's exit."""

    TIME_LIMIT = "its time limit is near"
    CANCELLED = "SLURM asked it to end"


@dataclass(frozen=True)
class Registered:
    """A worker's first message: its task of a job array, how often that was started before, and its node.

    Above ``memory_bytes`` the process should be replaced by a fresh one.
    """

    job: str
    place: int
    restarts: int
    node: str
    memory_bytes: int


@dataclass(frozen=True)
class Alive:
    """A heartbeat."""


@dataclass(frozen=True)
class Leaving:
    """The worker starts no more jobs; the running one ends at the next chunk."""

    reason: ExitReason


@dataclass(frozen=True)
class Left:
    """The worker's last message."""


WorkerMessage = Reply | Registered | Alive | Leaving | Left

_CODEC = Codec(
    {type_.__name__: type_ for type_ in (*REPLIES, Registered, Alive, Leaving, Left)}, "A worker's message is"
)


def encode_message(message: WorkerMessage) -> bytes:
    """Encode a message of a worker as one line."""
    return _CODEC.encode(type(message).__name__, message)


def decode_message(data: bytes) -> WorkerMessage:
    """Decode a message of a worker.

    Raises:
        RunError: this is no message of a worker.
    """
    message: WorkerMessage = _CODEC.decode(data)[1]
    return message


def poll_pause_s(idle_s: float) -> float:
    """Return how long to wait before the next read: a tenth of the time without a message.

    >>> poll_pause_s(0), poll_pause_s(2), poll_pause_s(3600)
    (0.01, 0.2, 0.5)
    """
    return min(max(POLL_SHARE * idle_s, MIN_POLL_S), MAX_POLL_S)


def _file(stem: Path, number: int) -> Path:
    return stem.with_name(f"{stem.name}.{number}")


def make_channel(stem: Path) -> None:
    """Create an empty channel."""
    _file(stem, 0).touch(mode=0o600)


class ChannelWriter:
    """The one writer of a channel; several threads may write."""

    def __init__(self, stem: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._stem = stem
        self._max_bytes = max_bytes
        self._number = 0
        self._num_messages = 0
        self._size = 0
        self._writing = threading.Lock()

    def write(self, message: bytes) -> None:
        """Append a message: bytes on one line, not empty.

        Raises:
            OSError: it was not written, and may be tried again.
        """
        with self._writing:
            if self._size > self._max_bytes:
                _file(self._stem, self._number + 1).touch(mode=0o600)
                self._append(_NEXT_FILE)
                self._number, self._size = self._number + 1, 0
            self._append(message)

    def _append(self, message: bytes) -> None:
        line = b"%d %08x %b\n" % (self._num_messages, zlib.crc32(message), message)
        handle = os.open(_file(self._stem, self._number), os.O_WRONLY)
        try:
            if os.fstat(handle).st_size != self._size:
                os.ftruncate(handle, self._size)  # a part of a message that met a full disk
            os.lseek(handle, self._size, os.SEEK_SET)
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(handle, rest) :]
        finally:
            os.close(handle)  # here a network file system reports that it could not store it
        self._size += len(line)
        self._num_messages += 1


class ChannelReader:
    """The one reader of a channel."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem
        self._number = 0
        self._num_messages = 0
        self._offset = 0

    def read(self) -> list[bytes]:
        """Return the whole messages since the last call.

        Raises:
            FileNotFoundError: the channel was removed.
            OSError: it cannot be read now.
        """
        messages: list[bytes] = []
        while self._read_file(messages):
            _file(self._stem, self._number).unlink(missing_ok=True)
            self._number, self._offset = self._number + 1, 0
        return messages

    def _read_file(self, messages: list[bytes]) -> bool:
        """Append the messages of the current file; True if they continue in another file."""
        with _file(self._stem, self._number).open("rb") as file:
            if os.fstat(file.fileno()).st_size <= self._offset:
                return False
            file.seek(self._offset)
            content = file.read()
        for line in content.splitlines(keepends=True):
            message = self._parse(line)
            if message is None:
                return False
            self._offset += len(line)
            self._num_messages += 1
            if message == _NEXT_FILE:
                return True
            messages.append(message)
        return False

    def _parse(self, line: bytes) -> bytes | None:
        """Return the message of a line; None while it is not whole."""
        number, _, rest = line.removesuffix(b"\n").partition(b" ")
        checksum, _, message = rest.partition(b" ")
        if (
            not line.endswith(b"\n")
            or number != b"%d" % self._num_messages
            or checksum != b"%08x" % zlib.crc32(message)
        ):
            return None
        return message
