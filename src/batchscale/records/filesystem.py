"""Every file-system call of the writer of a study, in one small object.

The writer never calls ``os`` itself. Tests pass an object that crashes, fills up or loses unsynced writes at call N.
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

    The writer relies on these promises: ``replace`` and ``exchange`` are atomic for every reader; bytes are durable
    after ``fsync`` of their file, names after ``sync_directory`` of the directory that holds them; ``write`` writes all
    bytes or raises. Every call raises ``OSError`` when it fails.
    """

    def create(self, path: Path) -> int:
        """Create an empty file and open it for writing; it must not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)

    def open_append(self, path: Path) -> int:
        """Open an existing file for appending."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def write(self, handle: int, data: bytes) -> None:
        """Write all of the bytes: a full disk may take only some of them without an error, so the count is checked."""
        view = memoryview(data)
        while view:
            count = os.write(handle, view)
            if count <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            view = view[count:]

    def fsync(self, handle: int) -> None:
        """Make the file's bytes and size durable."""
        os.fsync(handle)

    def fdatasync(self, handle: int) -> None:
        """Make the file's bytes and size durable, without its times."""
        getattr(os, "fdatasync", os.fsync)(handle)

    def close(self, handle: int) -> None:
        """Close the handle."""
        os.close(handle)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file or directory, replacing the target (a directory only if it is empty)."""
        source.replace(target)

    def exchange(self, first: Path, second: Path) -> bool:
        """Exchange two names in one step; False, with nothing done, if the system cannot."""
        if not sys.platform.startswith("linux"):
            return False
        call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if call is None:
            return False
        done = call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE_FLAG)
        if done == 0:
            return True
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):  # NFS and old kernels
            return False
        raise OSError(code, os.strerror(code), str(first))

    def mkdir(self, path: Path) -> None:
        """Make a directory; its parent must exist."""
        path.mkdir()

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def exists(self, path: Path) -> bool:
        """True if there is a file or directory of this name."""
        return path.exists()

    def is_dir(self, path: Path) -> bool:
        """True if there is a directory of this name."""
        return path.is_dir()

    def list_directory(self, path: Path) -> list[Entry]:
        """Return the entries of a directory, in order of names."""
        with os.scandir(path) as entries:
            listed = [Entry(e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in entries]
        return sorted(listed, key=lambda entry: entry.name)

    def resolve(self, path: Path) -> Path:
        """Return the path with every link followed."""
        return path.resolve(strict=True)

    def read(self, path: Path | str, limit: int) -> bytes:
        """Return the bytes of a regular file; more than ``limit`` of them are refused, not read."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a named pipe must not make us wait
        try:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode):
                raise NotAFileError(f"{path}: a file of records is a regular file. Found a folder, pipe or device.")
            if state.st_size > limit:
                raise FileTooLargeError(path, state.st_size, limit)
            first = os.read(handle, state.st_size + 1)
            if len(first) == state.st_size:
                return first  # the usual case: no byte more
            chunks, size = [first], len(first)
            while chunk := os.read(handle, min(limit + 1 - size, 1 << 24)):
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise FileTooLargeError(path, max(size, state.st_size), limit)
        finally:
            os.close(handle)
        return b"".join(chunks)

    def lock(self, path: Path) -> int | None:
        """Lock a file, made if need be, until ``close`` or the death of the process; None if another process has it."""
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
        """Write the bytes as the only content of a locked file: for people to read, not durable."""
        os.ftruncate(handle, 0)
        os.pwrite(handle, data, 0)


REAL = FileSystem()
