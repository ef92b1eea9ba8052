"""Replace files so that no reader sees half of one, and make files and folders survive the loss of power.

`replace_durably` and `replace_atomically` are the two ways to write a file in one piece, each named by its promise.
Everything else here is a step of a writer that needs more than one file. The writer of a study calls a `FileSystem`,
never ``os``: tests pass one that crashes, fills up or loses unsynced writes at call N.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from batchscale.errors import RecordsError, StorageError

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


_SYNCED_AT_ONCE = 8


def replace_durably(path: Path, data: bytes | str) -> None:
    """Replace a file as a whole; on return it survives the loss of power. Missing folders are made.

    Raises:
        StorageError: the file system refuses; the old file is untouched.
    """
    with storing("writing the file", path):
        make_folders(REAL, path.parent)
        replace_file(REAL, path, path.parent, data.encode() if isinstance(data, str) else data)


def replace_atomically(path: Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Replace a file as a whole: readers see the old bytes or the new ones. Loss of power may lose both.

    ``mode`` are the permissions of the new file, before the umask.

    Raises:
        OSError: the file system refuses; the old file is untouched.
    """
    with replacing_atomically(path, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing_atomically(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Give a new file to write to, which replaces ``path`` at the end of the block as `replace_atomically` does.

    It lies beside ``path`` meanwhile, and is removed if the block raises. Its name ends in ``.writing``, which mirrors
    skip, and is unique, so that several processes may replace the same file.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.writing")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def replace_file(fs: FileSystem, path: Path, working: Path, data: bytes) -> None:
    """Replace a file durably, step by step on ``fs``; ``working`` is the folder of the new file until it is whole."""
    new = working / f"{path.name}.new"
    if fs.exists(new):
        fs.unlink(new)
    write_file(fs, new, data)
    fs.replace(new, path)
    fs.sync_directory(path.parent)


def write_file(fs: FileSystem, path: Path, data: bytes) -> None:
    """Write a new file, durable once its directory is synced."""
    handle = fs.create(path)
    try:
        fs.write(handle, data)
        fs.fsync(handle)
    finally:
        fs.close(handle)


def make_folders(fs: FileSystem, path: Path) -> None:
    """Make a folder and those above it, durably. Another process may be making some of them at the same time."""
    missing = []
    while not fs.is_dir(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            fs.mkdir(folder)
        except FileExistsError:
            if not fs.is_dir(folder):  # a file is in the way
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
        fs.sync_directory(folder.parent)


def remove_folder(fs: FileSystem, folder: Path) -> None:
    """Remove a folder of files."""
    for entry in fs.list_directory(folder):
        fs.unlink(folder / entry.name)
    fs.rmdir(folder)


def sync_chain(fs: FileSystem, root: Path, folder: Path) -> None:
    """Make the names of all folders from ``root`` to ``folder`` durable, whichever process made them."""
    while folder != root:
        folder = folder.parent
        fs.sync_directory(folder)


def sync_tree(folder: Path) -> None:
    """Make every file and folder below durable; several at a time, which a disk finishes together."""
    folders = [Path(where) for where, _, _ in os.walk(folder)]
    files = [path for where in folders for path in where.iterdir() if path.is_file()]
    with ThreadPoolExecutor(_SYNCED_AT_ONCE, "batchscale-sync") as pool:
        list(pool.map(sync_path, files))
        list(pool.map(sync_path, folders))


def sync_path(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def storing(what: str, path: Path) -> Iterator[None]:
    """Turn the system's errors into a StorageError that names the work, ``what``, and the remedy."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        advice = {
            errno.ENOSPC: "Free some space and run again",
            errno.EDQUOT: "Ask for a larger quota or free some space and run again",
            errno.EROFS: "Choose a folder on a file system that can be written",
            errno.EACCES: "Give yourself the right to write there, or choose another folder",
        }.get(error.errno or 0, "Check the disk and run again")
        raise StorageError(
            f"{path}: {what} failed: {error.strerror or error}. {advice}; everything committed before is safe.",
            error.errno,
        ) from error
