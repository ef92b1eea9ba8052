"""Letters between two processes through a file that both see: one appends, the other reads.

What network file systems promise is that whoever opens a file after another has closed it sees what was written. So
every letter is one open, append and close, and every look opens the file anew: no new names that a client's cache of
folders might hide, no times, no order of listings. A letter carries its number and a checksum; one that is not whole
yet is looked at again later. A long file goes on in another one, and the reader removes what it has read.
"""

import os
import threading
import zlib
from pathlib import Path

MAX_FILE_BYTES = 8_000_000
LEAST_LOOK_S, MOST_LOOK_S = 0.01, 0.5
LOOK_SHARE = 0.1
_NEXT_FILE = b""


def pause_s(silent_s: float) -> float:
    """How long to wait before the next look: a tenth of the time that nothing came.

    >>> pause_s(0), pause_s(2), pause_s(3600)
    (0.01, 0.2, 0.5)
    """
    return min(max(LOOK_SHARE * silent_s, LEAST_LOOK_S), MOST_LOOK_S)


def _file(stem: Path, number: int) -> Path:
    return stem.with_name(f"{stem.name}.{number}")


def make_mailbox(stem: Path) -> None:
    """An empty mailbox."""
    _file(stem, 0).touch(mode=0o600)


class LetterWriter:
    """The one writer of a mailbox that exists; several threads may write."""

    def __init__(self, stem: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self._stem = stem
        self._max_bytes = max_bytes
        self._number = 0
        self._letters = 0
        self._size = 0
        self._writing = threading.Lock()

    def write(self, letter: bytes) -> None:
        """Append a letter: bytes on one line, not empty.

        Raises:
            OSError: it was not written, and may be tried again.
        """
        with self._writing:
            if self._size > self._max_bytes:
                _file(self._stem, self._number + 1).touch(mode=0o600)
                self._append(_NEXT_FILE)
                self._number, self._size = self._number + 1, 0
            self._append(letter)

    def _append(self, letter: bytes) -> None:
        line = b"%d %08x %b\n" % (self._letters, zlib.crc32(letter), letter)
        handle = os.open(_file(self._stem, self._number), os.O_WRONLY)
        try:
            if os.fstat(handle).st_size != self._size:
                os.ftruncate(handle, self._size)  # a part of a letter that found the disk full
            os.lseek(handle, self._size, os.SEEK_SET)
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(handle, rest) :]
        finally:
            os.close(handle)  # a network file system says here that it could not keep it
        self._size += len(line)
        self._letters += 1


class LetterReader:
    """The one reader of a mailbox."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem
        self._number = 0
        self._letters = 0
        self._offset = 0

    def read(self) -> list[bytes]:
        """The letters that have come whole since the last call.

        Raises:
            FileNotFoundError: the mailbox was taken away.
            OSError: it cannot be read now.
        """
        found: list[bytes] = []
        while self._read_file(found):
            _file(self._stem, self._number).unlink(missing_ok=True)
            self._number, self._offset = self._number + 1, 0
        return found

    def _read_file(self, found: list[bytes]) -> bool:
        """Take in what the file has; True if the letters go on in another file."""
        with _file(self._stem, self._number).open("rb") as file:
            if os.fstat(file.fileno()).st_size <= self._offset:
                return False
            file.seek(self._offset)
            content = file.read()
        for line in content.splitlines(keepends=True):
            letter = self._parse(line)
            if letter is None:
                return False
            self._offset += len(line)
            self._letters += 1
            if letter == _NEXT_FILE:
                return True
            found.append(letter)
        return False

    def _parse(self, line: bytes) -> bytes | None:
        """The letter of a line; None while it is not whole."""
        number, _, rest = line.removesuffix(b"\n").partition(b" ")
        checksum, _, letter = rest.partition(b" ")
        if not line.endswith(b"\n") or number != b"%d" % self._letters or checksum != b"%08x" % zlib.crc32(letter):
            return None
        return letter
