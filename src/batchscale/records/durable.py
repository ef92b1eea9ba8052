"""Durable steps that the writer is made of: whole files, whole folders, and what a failing disk is called."""

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from batchscale.errors import StorageError
from batchscale.records.filesystem import FileSystem

_SYNCED_AT_ONCE = 8


def write_file(fs: FileSystem, path: Path, data: bytes) -> None:
    """A new file with these bytes, durable once its directory is synced."""
    handle = fs.create(path)
    try:
        fs.write(handle, data)
        fs.fsync(handle)
    finally:
        fs.close(handle)


def replace_file(fs: FileSystem, path: Path, working: Path, data: bytes) -> None:
    """The bytes under this name, all or the old ones, durable on return; ``working`` holds the new file first."""
    new = working / f"{path.name}.new"
    if fs.exists(new):
        fs.unlink(new)
    write_file(fs, new, data)
    fs.replace(new, path)
    fs.sync_directory(path.parent)


def make_folders(fs: FileSystem, path: Path) -> None:
    """The folder and those above it, durable. Another process may be making some of them at the same time."""
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


def write_text_file(path: Path, text: str) -> None:
    """A file with this text, all of it or the old one, in a folder that is made if need be."""
    fs = FileSystem()
    with storing("writing the file", path):
        make_folders(fs, path.parent)
        replace_file(fs, path, path.parent, text.encode())


def sync_chain(fs: FileSystem, root: Path, folder: Path) -> None:
    """The names of all folders from ``root`` to ``folder``, durable, whoever made them."""
    while folder != root:
        folder = folder.parent
        fs.sync_directory(folder)


def sync_tree(folder: Path) -> None:
    """Every file and folder below, durable; several at a time, which a disk finishes together."""
    below = [Path(where) for where, _, _ in os.walk(folder)]
    files = [path for where in below for path in where.iterdir() if path.is_file()]
    with ThreadPoolExecutor(_SYNCED_AT_ONCE, "batchscale-sync") as pool:
        list(pool.map(sync_path, files))
        list(pool.map(sync_path, below))


def sync_path(path: Path) -> None:
    """What a file holds, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_folder(fs: FileSystem, folder: Path) -> None:
    """A folder of files, removed."""
    for entry in fs.list_directory(folder):
        fs.unlink(folder / entry.name)
    fs.rmdir(folder)


@contextmanager
def storing(what: str, path: Path) -> Iterator[None]:
    """Turns the system's refusals into one that says what was being done and what to do."""
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
        }.get(error.errno or 0, "See to the disk and run again")
        raise StorageError(
            f"{path}: {what} needs the file system to take it. Found: {error.strerror or error}. {advice}; what was "
            "committed before is safe.",
            error.errno,
        ) from error
