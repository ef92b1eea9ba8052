"""Replace files so that no reader sees half of one, and make files and folders survive the loss of power.

`replace_durably` and `replace_atomically` are the two ways to write a file in one piece, each named by its promise.
Everything else here is a step of a writer that needs more than one file.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from batchscale.errors import StorageError
from batchscale.records.filesystem import REAL, FileSystem

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
            if not fs.is_dir(folder):
                raise
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
