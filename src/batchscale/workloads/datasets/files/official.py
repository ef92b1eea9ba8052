"""Official files of data sets: where they come from, and the check of size and SHA-256. Imports no jax.

Addresses are only a default: ``batchscale data get NAME --url`` takes others.
"""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from batchscale.errors import DataError, one_line


@dataclass(frozen=True)
class OfficialFile:
    """A file as published, after decompression."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """One file to download, from the first mirror that has it.

    ``contents`` are the official files inside (one for a plain or gzipped file, several for an archive); where they
    are not known one by one, ``sha256`` is that of the download itself, and ``unpack`` takes everything out of it.
    """

    name: str
    mirrors: tuple[str, ...]
    contents: tuple[OfficialFile, ...] = ()
    num_bytes: int | None = None
    sha256: str | None = None
    unpack: bool = False


@dataclass(frozen=True)
class Origin:
    """The source of a data set: downloads (none: by hand), an instruction for people, and the terms of use."""

    folder: str
    downloads: tuple[Download, ...]
    terms: str
    how: str = ""

    @property
    def contents(self) -> tuple[OfficialFile, ...]:
        """The official files with checksums."""
        return tuple(file for download in self.downloads for file in download.contents)

    @property
    def instruction(self) -> str:
        """The command to run, or the work by hand, as a sentence without a full stop."""
        if not self.downloads:
            return self.how
        return f"run `batchscale data get {self.folder}`" + (f", {self.how}" if self.how else "")


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a data set: their origin, a cheap test of a folder that may hold them, and their places.

    ``system_folder`` is where a package of the system puts them, below the folder of such packages.
    ``needs_its_name`` keeps a test that many a folder would pass from being tried on folders of other names.
    """

    origin: Origin
    are_in: Callable[[Path], bool]
    system_folder: str | None = None
    needs_its_name: bool = False

    @property
    def folder(self) -> str:
        """The name of the folder that holds them."""
        return self.origin.folder


def plain_file(mirrors: tuple[str, ...], name: str, num_bytes: int, sha256: str, ending: str = "") -> Download:
    """Return a download of one official file from folders of mirrors; with the ending ".gz" it is compressed."""
    addresses = tuple(f"{mirror}{name}{ending}" for mirror in mirrors)
    return Download(f"{name}{ending}", addresses, (OfficialFile(name, num_bytes, sha256),))


_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """Open the content of a file, decompressed if its first bytes are those of gzip."""
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    opened: IO[bytes] = cast(IO[bytes], gzip.open(path)) if zipped else path.open("rb")  # noqa: SIM115
    with opened:
        yield opened


def check_content(where: str, content: IO[bytes], official: OfficialFile, out: IO[bytes] | None = None) -> None:
    """Read ``content`` to its end, copying it to ``out``; raise DataError unless it is the official file.

    No more is read than the official file has, so that a small file that decompresses to a huge one does no harm.
    """
    digest, remaining = hashlib.sha256(), official.num_bytes + 1
    try:
        while remaining > 0 and (chunk := content.read(min(_CHUNK, remaining))):
            remaining -= len(chunk)
            digest.update(chunk)
            if out is not None:
                out.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{where} is damaged: {one_line(error)}") from error
    if remaining != 1:
        actual = "more" if remaining <= 0 else f"{official.num_bytes + 1 - remaining:,}"
        raise DataError(f"{where} must be {official.name} with {official.num_bytes:,} bytes, found {actual}")
    if digest.hexdigest() != official.sha256:
        raise DataError(
            f"{where} is not the official {official.name}: its SHA-256 is {digest.hexdigest()}, "
            f"must be {official.sha256}"
        )


def check_file(path: Path, official: OfficialFile) -> None:
    """Raise DataError unless the file, plain or gzipped, is the official one."""
    with open_content(path) as content:
        check_content(str(path), content, official)
