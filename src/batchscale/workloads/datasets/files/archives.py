"""Read archives as untrusted: members are streamed, never extracted by name; links and odd paths never touch the disk.

Only regular files count. A file is taken by its base name from a list, or lands below the target folder under a path
whose every part is checked. Sizes are bounded while reading, whatever the headers say. Imports no jax.
"""

import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from batchscale.errors import DataError, one_line
from batchscale.records.tar_headers import BoundedTarInfo

SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip")
_CHUNK = 1 << 20
_SAFE_PART = re.compile(r"(?!\.\.?$)[\w.][\w.+,@ -]{0,200}")
_MAX_DEPTH = 12
_MAX_MEMBERS = 20_000_000


def is_archive(path: Path) -> bool:
    """True if the name has the ending of an archive."""
    return path.name.endswith(SUFFIXES)


def iter_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and content of every regular file of an archive, in order; everything else is skipped.

    Raises:
        DataError: The archive is damaged or has too many members.
    """
    with _reported(path):
        members = _zip_members(path) if path.suffix == ".zip" else _tar_members(path)
        for number, (name, file) in enumerate(members):
            if number >= _MAX_MEMBERS:
                raise DataError(f"{path} has more than {_MAX_MEMBERS:,} members: refused.")
            yield name, file


def read_members(path: Path, names: set[str], limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield the members with these base names, in any folder of the archive; each at most ``limit`` bytes."""
    for name, file in iter_members(path):
        base = PurePosixPath(name).name
        if base in names:
            with _reported(path):
                content = file.read(limit + 1)
            if len(content) > limit:
                raise DataError(f"{path}: {one_line(name)} is larger than the {limit:,} bytes it may have.")
            yield base, content


def extract_all(path: Path, target: Path, total_limit: int) -> int:
    """Write every regular file below ``target``; return their number. Nothing is ever written outside of it.

    Raises:
        DataError: A member's path is absolute, has ``..`` or odd characters, or the sizes exceed ``total_limit``.
    """
    count = total = 0
    for name, file in iter_members(path):
        parts = _safe_parts(path, name)
        if any(part.startswith(".") for part in parts):
            continue  # what file managers leave behind
        destination = target.joinpath(*parts)
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _reported(path), destination.open("xb") as out:
            while chunk := file.read(_CHUNK):
                total += len(chunk)
                if total > total_limit:
                    raise DataError(f"{path} unpacks to more than {total_limit:,} bytes: refused.")
                out.write(chunk)
        count += 1
    return count


def _safe_parts(path: Path, name: str) -> tuple[str, ...]:
    parts = tuple(part for part in name.split("/") if part != ".")
    if not 1 <= len(parts) <= _MAX_DEPTH or not all(_SAFE_PART.fullmatch(part) for part in parts):
        raise DataError(f"{path}: a member must have a plain path inside the archive. Found {one_line(repr(name))}.")
    return parts


def _tar_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(path, "r|*", tarinfo=BoundedTarInfo) as archive:
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # in every version, not in the stubs; else all headers stay in memory
            if member.isreg():
                file = archive.extractfile(member)
                if file is not None:
                    yield member.name, file


def _zip_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if not member.is_dir() and kind in (0, stat.S_IFREG):
                with archive.open(member) as file:
                    yield member.filename, file


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn the errors of a damaged archive into a DataError that names it; a full disk is another error."""
    try:
        yield
    except DataError:
        raise
    except FileExistsError as error:
        raise DataError(f"{path} holds two files of the same path: {one_line(error.filename)}.") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise DataError(f"{path} cannot be read: {one_line(error)}. Download it again.") from error
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        RuntimeError,
        ValueError,
    ) as error:
        raise DataError(f"{path} cannot be read: {one_line(error)}. Download it again.") from error
