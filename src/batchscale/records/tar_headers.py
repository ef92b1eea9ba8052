"""The extended headers of a tar archive, bounded before the standard library processes them.

They hold long names and numbers, a few hundred bytes each. ``tarfile`` reads them whole, whatever size they claim, and
some without end: a long row of digits takes it the square of its length before Python 3.13, a chain of long names keeps
every one of them in memory.
"""

import re
import tarfile
from typing import Any

MAX_HEADER_BYTES = 16 * 1024
"""Of one extended header. The longest path of a file system has 4,096."""
MAX_CHAINED = 8
"""Extended headers before one member; archives have at most three."""
MAX_GLOBAL_KEYS = 100

_LONG_NUMBER = re.compile(rb"[0-9]{200}")
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENDED = (*_PAX, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class BoundedTarInfo(tarfile.TarInfo):
    """A member whose extended headers are checked first; pass it as ``tarinfo`` to ``tarfile.open``.

    Raises:
        tarfile.ReadError: an extended header is larger than any real one.
    """

    def _proc_member(self, archive: Any) -> tarfile.TarInfo:
        """Process the header that was just read; ``tarfile`` calls this for every header."""
        chained = getattr(archive, "chained_headers", 0) + 1 if self.type in _EXTENDED else 0
        archive.chained_headers = chained
        if chained > MAX_CHAINED:
            raise tarfile.ReadError(f"more than {MAX_CHAINED} extended headers before one file")
        if chained and not 0 <= self.size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(
                f"an extended header has at most {MAX_HEADER_BYTES:,} bytes, this one {self.size:,}"
            )
        if self.type == tarfile.GNUTYPE_SPARSE and self._sparse_structs[1]:  # type: ignore[attr-defined]
            raise tarfile.ReadError("a sparse file with further headers")
        if self.type not in _PAX:
            return super()._proc_member(archive)  # type: ignore[misc, no-any-return]
        return self._process_pax(archive)

    def _process_pax(self, archive: Any) -> tarfile.TarInfo:
        file = archive.fileobj
        content = file.read(self._block(self.size))  # type: ignore[attr-defined]
        if _LONG_NUMBER.search(content):
            raise tarfile.ReadError("a number of more than 200 digits in an extended header")
        if b"GNU.sparse" in content:
            raise tarfile.ReadError("a sparse file, described by an extended header")
        archive.fileobj = _Replayed(content, file)
        try:
            member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        finally:
            archive.fileobj = file
        if len(archive.pax_headers) > MAX_GLOBAL_KEYS:
            raise tarfile.ReadError(f"more than {MAX_GLOBAL_KEYS} keys for all files together")
        return member


class _Replayed:
    """A file whose next read returns content that was read from it already."""

    def __init__(self, content: bytes, file: Any) -> None:
        self._content: bytes | None = content
        self._file = file

    def read(self, size: int) -> bytes:
        if self._content is None:
            read: bytes = self._file.read(size)
            return read
        content, self._content = self._content, None
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
