"""Whether a file holds what was published: size and SHA-256 of the content, after decompression. Imports no jax."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from batchscale.errors import DataError, one_line
from batchscale.workloads.datasets.files.origin import OfficialFile

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """The content of a file, decompressed if its first bytes say gzip."""
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    opened: IO[bytes] = cast(IO[bytes], gzip.open(path)) if zipped else path.open("rb")  # noqa: SIM115
    with opened:
        yield opened


def check_content(where: str, content: IO[bytes], official: OfficialFile, out: IO[bytes] | None = None) -> None:
    """Read ``content`` to its end, copying it to ``out``; raise DataError unless it is the official file.

    No more is read than the official file has, so that a small file that decompresses to a huge one does no harm.
    """
    digest, left = hashlib.sha256(), official.num_bytes + 1
    try:
        while left > 0 and (chunk := content.read(min(_CHUNK, left))):
            left -= len(chunk)
            digest.update(chunk)
            if out is not None:
                out.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{where} is damaged: {one_line(error)}") from error
    if left != 1:
        found = "more" if left <= 0 else f"{official.num_bytes + 1 - left:,}"
        raise DataError(f"{where} must be {official.name} with {official.num_bytes:,} bytes, found {found}")
    if digest.hexdigest() != official.sha256:
        raise DataError(
            f"{where} is not the official {official.name}: its SHA-256 is {digest.hexdigest()}, "
            f"must be {official.sha256}"
        )


def check_file(path: Path, official: OfficialFile) -> None:
    """Raise DataError unless the file, plain or gzipped, is the official one."""
    with open_content(path) as content:
        check_content(str(path), content, official)
