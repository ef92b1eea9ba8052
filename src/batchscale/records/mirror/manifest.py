"""The manifest of a mirror: which files it has, and by which hash each is found. Writing it is the commit point."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from batchscale.errors import RecordsError, one_line

MANIFEST = "manifest.json"
VERSION = 1
MAX_FILES = 10_000_000


@dataclass(frozen=True)
class MirroredFile:
    """A file of the tree: its size, and the hash under which its content is kept."""

    size: int
    sha256: str

    @property
    def object_name(self) -> str:
        """Where its content is."""
        return f"objects/{self.sha256[:2]}/{self.sha256}"


def describe(content: bytes) -> MirroredFile:
    """The entry of a file with this content."""
    return MirroredFile(len(content), hashlib.sha256(content).hexdigest())


def manifest_text(files: Mapping[str, MirroredFile]) -> bytes:
    """The manifest as JSON."""
    listed = {name: [entry.size, entry.sha256] for name, entry in sorted(files.items())}
    return json.dumps({"version": VERSION, "files": listed}).encode()


def parse_manifest(content: bytes, url: str) -> dict[str, MirroredFile]:
    """The files that a manifest lists.

    Raises:
        RecordsError: it is no manifest, of a later version, or names files outside of the tree.
    """
    try:
        found = json.loads(content)
        version, listed = found["version"], found["files"]
        if version != VERSION:
            raise RecordsError(f"{url}: mirrors of version {VERSION} are read. Found {one_line(version)}.")
        files = {_checked_name(name, url): _entry(value) for name, value in listed.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, RecordsError):
            raise
        raise RecordsError(f"{url}: {MANIFEST} lists the files of a mirror. Found something else there.") from None
    if len(files) > MAX_FILES:
        raise RecordsError(f"{url}: a mirror has at most {MAX_FILES:,} files. Found {len(files):,}.")
    return files


def _checked_name(name: str, url: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or any(part in ("..", ".") for part in path.parts) or "\0" in name:
        raise RecordsError(f"{url}: files of a mirror lie in its tree. Found {one_line(repr(name))}.")
    return str(path)


def _entry(value: Any) -> MirroredFile:
    size, digest = value
    if not isinstance(size, int) or size < 0 or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ValueError
    return MirroredFile(size, digest)
