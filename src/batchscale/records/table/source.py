"""Where an import reads from: an archive or a records tree, and how an archive is verified."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive.members import Member, iter_archive
from batchscale.records.archive.stream import ArchiveLimits, ArchiveStream
from batchscale.records.table.source_interface import Source
from batchscale.records.table.tree_source import TreeSource

PUBLISHED_NAME = "batch_science"
PUBLISHED_FILE = "batch_science_data.tar.bz2"
PUBLISHED_SHA256 = "6460ab86a6ab0f22a02e1c9b982e1ca31220bf41f669304ce86f14d19053f435"
_PUBLISHED_MEGABYTES = 802

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def open_source(path: Path, limits: ArchiveLimits, verify: str | None) -> Source:
    """The archive or tree at ``path``, its checksum verified."""
    if path.is_dir():
        if verify:
            raise RecordsError(f"{path}: --verify is for the checksum of an archive. Found a directory.")
        return TreeSource(path)
    if not path.is_file():
        raise RecordsError(f"{path}: records are an archive, a table or a directory. Found nothing of these.")
    return ArchiveSource(path, limits, verify)


@final
class ArchiveSource(Source):
    """A tar archive. Positions are bytes of the decompressed archive."""

    has_root = True

    def __init__(self, path: Path, limits: ArchiveLimits, verify: str | None) -> None:
        self.path, self.limits = path, limits
        self._stream: ArchiveStream | None = None
        digest = _verified_checksum(path, verify)
        self.facts = {
            "kind": "archive",
            "name": path.name,
            "bytes": path.stat().st_size,
            "sha256": digest,
            "published": digest == PUBLISHED_SHA256,
        }

    def fingerprint(self, position: int) -> dict[str, Any]:  # noqa: ARG002 - an archive changes as a whole
        """The facts, which have the checksum of the whole."""
        return self.facts

    def entries(self, position: int) -> Iterator[Member]:
        """Every member from the position on."""
        with ArchiveStream(self.path, self.limits) as stream:
            self._stream = stream
            stream.seek(position)
            yield from iter_archive(stream)

    def fraction(self) -> float:
        """The share of the compressed file."""
        return self._stream.fraction() if self._stream else 0.0


def _verified_checksum(path: Path, verify: str | None) -> str:
    """The archive's SHA-256, compared with the one asked for and, by its name, with the published one."""
    wanted = PUBLISHED_SHA256 if verify == PUBLISHED_NAME else verify
    if wanted is None and path.name == PUBLISHED_FILE:
        wanted = PUBLISHED_SHA256
    if wanted is not None and not _SHA256.fullmatch(wanted):
        raise RecordsError(
            f"--verify takes a SHA-256 of 64 hexadecimal digits or the name {PUBLISHED_NAME}. Found {one_line(verify)}."
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if wanted is not None and digest != wanted.lower():
        raise RecordsError(
            f"{path}: the archive must have the SHA-256 {wanted.lower()}. Found {digest}. Download it again; if it is "
            "another archive, rename it or leave out --verify."
        )
    return digest


def looks_published(facts: dict[str, Any]) -> bool:
    """Whether an archive has about the size of the published one without being it: perhaps a damaged download."""
    size = facts.get("bytes", 0)
    return not facts.get("published") and size // 1_000_000 in (_PUBLISHED_MEGABYTES - 1, _PUBLISHED_MEGABYTES)
