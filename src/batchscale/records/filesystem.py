"""Every file-system call of the records store, in one small object.

The store never calls ``os`` itself. Tests pass an object that crashes, fills up or loses unsynced writes at call N.
"""

import ctypes
import errno
import fcntl
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import RecordsError

_EXCHANGE_FLAG = 2
_AT_FDCWD = -100


FileMark = tuple[int, int]
"""Size and time of change: another mark, other bytes."""


@dataclass(frozen=True)
class Entry:
    """One name in a directory. A link is neither a file nor a directory until it is resolved."""

    name: str
    is_dir: bool
    is_link: bool = False


class NotAFileError(RecordsError):
    """A folder, pipe or device where a file should be."""


class FileTooLargeError(RecordsError):
    """A file that is larger than any file of its kind may be."""

    def __init__(self, path: Path | str, size: int, limit: int) -> None:
        super().__init__(
            f"{path}: a file of this kind has at most {limit:,} bytes. Found {size:,}. It is damaged or not a record; "
            "move it out of the tree."
        )
        self.size = size


class FileSystem:
    """The operating system's files.

    Promises that the store builds on: ``replace`` and ``exchange`` are atomic for every reader; bytes are durable after
    ``fsync`` of their file, names after ``sync_directory`` of the directory that holds them; ``write`` writes all bytes
    or raises. Every call raises ``OSError`` when it fails.
    """

    def create(self, path: Path) -> int:
        """A new empty file, open for writing; it must not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)

    def open_append(self, path: Path) -> int:
        """An existing file, open for appending."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def write(self, handle: int, data: bytes) -> None:
        """All of the bytes: a full disk may take only some of them without an error, so the count is checked."""
        view = memoryview(data)
        while view:
            count = os.write(handle, view)
            if count <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            view = view[count:]

    def fsync(self, handle: int) -> None:
        """The file's bytes and size, durable."""
        os.fsync(handle)

    def fdatasync(self, handle: int) -> None:
        """The file's bytes and size, durable, without its times."""
        getattr(os, "fdatasync", os.fsync)(handle)

    def close(self, handle: int) -> None:
        """The handle, given back."""
        os.close(handle)

    def sync_directory(self, path: Path) -> None:
        """The names in a directory, durable."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        """The file or directory under a new name, in the place of what was there (a directory only if empty)."""
        source.replace(target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Two names exchanged in one step; False, with nothing done, where the system cannot."""
        if not sys.platform.startswith("linux"):
            return False
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if call is None:
            return False
        done = call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE_FLAG)
        if done == 0:
            return True
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # NFS and old kernels
            return False
        raise OSError(code, os.strerror(code), str(one))

    def mkdir(self, path: Path) -> None:
        """A new directory; its parent must exist."""
        path.mkdir()

    def rmdir(self, path: Path) -> None:
        """An empty directory, removed."""
        path.rmdir()

    def unlink(self, path: Path) -> None:
        """A file, removed."""
        path.unlink()

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of this name."""
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        """Whether there is a directory of this name."""
        return path.is_dir()

    def list_directory(self, path: Path) -> list[Entry]:
        """What a directory holds, in order of names."""
        with os.scandir(path) as entries:
            found = [Entry(e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in entries]
        return sorted(found, key=lambda entry: entry.name)

    def resolve(self, path: Path) -> Path:
        """The path with every link followed."""
        return path.resolve(strict=True)

    def read(self, path: Path | str, limit: int) -> bytes:
        """The bytes of a regular file; more than ``limit`` of them are refused, not read."""
        return self.read_marked(path, limit)[0]

    def read_marked(self, path: Path | str, limit: int) -> tuple[bytes, FileMark]:
        """The same, with the file's mark when it was opened."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe must not make us wait
        try:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode):
                raise NotAFileError(f"{path}: a file of records is a regular file. Found a folder, pipe or device.")
            if state.st_size > limit:
                raise FileTooLargeError(path, state.st_size, limit)
            mark = (state.st_size, state.st_mtime_ns)
            first = os.read(handle, state.st_size + 1)
            if len(first) == state.st_size:
                return first, mark  # the usual case: there was no byte more to give
            chunks, size = [first], len(first)
            while chunk := os.read(handle, min(limit + 1 - size, 1 << 24)):
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise FileTooLargeError(path, max(size, state.st_size), limit)
        finally:
            os.close(handle)
        return b"".join(chunks), mark

    def lock(self, path: Path) -> int | None:
        """The file, created if need be, locked until ``close`` or the process dies; None if others have it."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:
            os.close(handle)
            raise
        return handle

    def stamp(self, handle: int, data: bytes) -> None:
        """The bytes as the only content of a locked file: for people to read, not durable."""
        os.ftruncate(handle, 0)
        os.pwrite(handle, data, 0)


REAL = FileSystem()
