"""The bytes of a compressed tar as one forward stream, with limits: an archive is hostile input.

Owns decompression and the limits on sizes. Knows nothing of tar members (``archive``).
"""

import bz2
import gzip
import lzma
import queue
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from batchscale.errors import RecordsError
from batchscale.machine import count_cores
from batchscale.records.archive.bzip2 import UnusualBzip2Error, iter_decompressed, iter_in_turn

CHUNK = 2**20
_QUEUED_CHUNKS = 16
_CORES_FOR_BLOCKS = 2  # docs/decisions/0152

_MAGIC = {b"BZh": "bz2", b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may be at most. A real one of 71.6 million measurements stays far below each of these."""

    members: int = 10_000_000
    member_bytes: int = 128 * 2**20
    total_bytes: int = 2**38
    ratio: float = 250.0  # decompressed to compressed
    small_bytes: int = 64 * 2**20  # below this no archive is a bomb


class DamagedArchiveError(RecordsError):
    """The archive cannot be read on from some position."""


class ArchiveStream:
    """The decompressed bytes, read once from front to back; a thread decompresses ahead.

    ``seek`` goes forward only. Raises DamagedArchiveError where the compressed data is torn or damaged, RecordsError
    where a limit is passed.
    """

    def __init__(self, path: Path, limits: ArchiveLimits) -> None:
        self.path, self.limits = path, limits
        self.size = path.stat().st_size
        self.kind = detect_compression(path)
        self.last = b""  # what the last read gave: tells a mark of the end from a torn end
        self._limit = min(limits.total_bytes, max(limits.small_bytes, limits.ratio * self.size)) if self.kind else None
        self._position = self._produced = 0
        self._chunk = memoryview(b"")
        self._chunks: queue.Queue[bytes | Exception] = queue.Queue(_QUEUED_CHUNKS)
        self._stop = threading.Event()
        self._raw = path.open("rb")
        self._thread = threading.Thread(target=self._decompress, name="batchscale-archive", daemon=True)
        self._thread.start()

    def __enter__(self) -> "ArchiveStream":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop decompressing and let go of the file."""
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._chunks.get(timeout=0.05)
            except queue.Empty:
                continue
        self._raw.close()

    def tell(self) -> int:
        """How many decompressed bytes were read."""
        return self._position

    def seek(self, position: int) -> int:
        """Skip forward to a position."""
        if position < self._position:
            raise RecordsError("An archive is read from front to back.")
        while self._position < position:
            if not self._take(position - self._position):
                break
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end."""
        if size > self.limits.member_bytes:
            raise RecordsError(
                f"{self.path}: a file in an archive has at most {self.limits.member_bytes:,} bytes. Found {size:,} at "
                f"byte {self._position:,} of the decompressed archive."
            )
        pieces, missing = [], size if size >= 0 else CHUNK
        while missing and (piece := self._take(missing)):
            pieces.append(piece)
            missing -= len(piece)
        self.last = b"".join(pieces)
        return self.last

    def fraction(self) -> float:
        """About how much of the compressed file is behind us, from 0 to 1."""
        if self.kind is None:
            return self._position / max(self.size, 1)
        try:
            return min(1.0, self._raw.tell() / max(self.size, 1))
        except ValueError:
            return 1.0

    def damage(self, reason: object) -> DamagedArchiveError:
        """The error that says where the archive cannot be read on."""
        return DamagedArchiveError(
            f"{self.path}: the archive is damaged or cut off ({reason}) at byte {self._position:,} of the decompressed "
            f"archive, about {self.fraction():.1%} of the file."
        )

    def _take(self, size: int) -> memoryview | bytes:
        if not self._chunk:
            found = self._chunks.get()
            if isinstance(found, Exception):
                self._chunks.put(found)  # whoever reads on hears it again
                raise self.damage(str(found) or type(found).__name__) from None
            self._chunk = memoryview(found)
            if not found:
                self._chunks.put(b"")
        piece, self._chunk = self._chunk[:size], self._chunk[size:]
        self._position += len(piece)
        if self._limit is not None and self._position > self._limit:
            raise RecordsError(
                f"{self.path}: an archive of {self.size:,} bytes may hold at most {int(self._limit):,} bytes "
                f"({self.limits.ratio:g} times its size). Found more: it may be a decompression bomb. If you trust it, "
                "unpack it and import the directory."
            )
        return piece

    def _decompress(self) -> None:
        try:
            if self.kind == "bz2":
                self._decompress_bzip2(count_cores())
            else:
                self._pump(_open(self.kind, self._raw))
        except Exception as error:  # noqa: BLE001 - every library has its own kinds; the reader's thread raises it
            self._chunks.put(error)

    def _decompress_bzip2(self, cores: int) -> None:
        handle = self._raw.fileno()
        try:
            by_blocks = cores >= _CORES_FOR_BLOCKS
            pieces = iter_decompressed(handle, self.size, cores) if by_blocks else iter_in_turn(handle)
            with closing(pieces):
                for block, end in pieces:
                    self._raw.seek(end)  # tells how far we are
                    for start in range(0, len(block), CHUNK):
                        if self._stop.is_set():
                            return
                        self._put(block[start : start + CHUNK])
            self._chunks.put(b"")
        except UnusualBzip2Error:
            # Nothing is known of what is sound behind this place: the standard library knows, and says what is wrong.
            self._raw.seek(0)
            self._pump(_open(self.kind, self._raw), skip=self._produced)

    def _put(self, chunk: bytes) -> None:
        self._produced += len(chunk)
        self._chunks.put(chunk)

    def _pump(self, file: Any, skip: int = 0) -> None:
        """Decompress to the end; ``read1`` gives what is sound before it fails."""
        with file:
            read = getattr(file, "read1", file.read)
            while not self._stop.is_set():
                chunk = read(CHUNK)
                passed = min(skip, len(chunk))
                skip -= passed
                if passed < len(chunk) or not chunk:
                    self._put(chunk[passed:])
                if not chunk:
                    return


def detect_compression(path: Path) -> str | None:
    """bz2, gz, xz or zst by the file's first bytes, or None for a plain tar."""
    with path.open("rb") as file:
        start = file.read(8)
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)


def _open(kind: str | None, raw: BinaryIO) -> Any:
    if kind == "bz2":
        return bz2.open(raw)
    if kind == "gz":
        return gzip.open(raw)
    if kind == "xz":
        return lzma.open(raw)
    if kind == "zst":
        import zstandard

        return zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=False)
    return raw
