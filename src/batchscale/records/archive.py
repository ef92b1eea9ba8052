"""The record files in a tar archive, one after the other, never unpacked: an archive is hostile input.

`ArchiveStream` decompresses and holds the limits on sizes; `iter_archive` finds the files in it. Only regular files
with names of the published layout are read. Links, devices, names that lead outside and duplicates are problems to
report; nothing is ever followed or written.
"""

import bz2
import gzip
import lzma
import queue
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from batchscale.errors import RecordsError, one_line
from batchscale.records.tar_headers import BoundedTarInfo
from batchscale.records.tree.layout import MAX_DEPTH, MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE, folder_number
from batchscale.spec.workload_name import is_safe_segment

CHUNK = 2**20
_QUEUED_CHUNKS = 16
_BZIP2_INPUT = 2**18
_TAR_BLOCK = 512
_MAX_NAME = 4_096

_MAGIC = {b"BZh": "bz2", b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}


@dataclass(frozen=True)
class ArchiveLimits:
    """The largest archive that is read. A real one of 71.6 million measurements stays far below each of these."""

    members: int = 10_000_000
    member_bytes: int = 128 * 2**20
    total_bytes: int = 2**38
    ratio: float = 250.0  # decompressed to compressed
    small_bytes: int = 64 * 2**20  # below this no archive is a bomb


class DamagedArchiveError(RecordsError):
    """The archive cannot be read from some position on."""


class ArchiveStream:
    """The decompressed bytes, read once from front to back; a thread decompresses ahead.

    ``seek`` goes forward only. Raises DamagedArchiveError where the compressed data is torn or damaged, RecordsError
    where a limit is passed.
    """

    def __init__(self, path: Path, limits: ArchiveLimits) -> None:
        self.path, self.limits = path, limits
        self.size = path.stat().st_size
        self.kind = detect_compression(path)
        self.last = b""  # the bytes of the last read: an end mark, or a torn end
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
        """Stop decompressing and close the file."""
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._chunks.get(timeout=0.05)
            except queue.Empty:
                continue
        self._raw.close()

    def tell(self) -> int:
        """Return the number of decompressed bytes that were read."""
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
        """Return up to ``size`` bytes, fewer only at the end."""
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
        """Return about how much of the compressed file was read, from 0 to 1."""
        if self.kind is None:
            return self._position / max(self.size, 1)
        try:
            return min(1.0, self._raw.tell() / max(self.size, 1))
        except ValueError:
            return 1.0

    def damage(self, reason: object) -> DamagedArchiveError:
        """Return the error for an archive that cannot be read beyond this position."""
        return DamagedArchiveError(
            f"{self.path}: the archive is damaged or cut off ({reason}) at byte {self._position:,} of the decompressed "
            f"archive, about {self.fraction():.1%} of the file."
        )

    def _take(self, size: int) -> memoryview | bytes:
        if not self._chunk:
            chunk = self._chunks.get()
            if isinstance(chunk, Exception):
                self._chunks.put(chunk)  # the next read raises it again
                raise self.damage(str(chunk) or type(chunk).__name__) from None
            self._chunk = memoryview(chunk)
            if not chunk:
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
                self._decompress_bzip2()
            else:
                self._pump(_open(self.kind, self._raw))
        except Exception as error:  # noqa: BLE001 - every library has its own kinds; the reader's thread raises it
            self._chunks.put(error)

    def _decompress_bzip2(self) -> None:
        """Decompress in large pieces: the file object takes 8 kB at a time, and waits for Python's lock after each."""
        try:
            for chunk in _iter_bzip2(self._raw):
                if self._stop.is_set():
                    return
                self._put(chunk)
            self._chunks.put(b"")
        except (OSError, EOFError, ValueError):
            # The file object gives every sound byte before the damage, accepts trailing data, and names the reason.
            self._raw.seek(0)
            self._pump(_open(self.kind, self._raw), skip=self._produced)

    def _put(self, chunk: bytes) -> None:
        self._produced += len(chunk)
        self._chunks.put(chunk)

    def _pump(self, file: Any, skip: int = 0) -> None:
        """Decompress to the end; ``read1`` gives the sound bytes before it fails."""
        with file:
            read = getattr(file, "read1", file.read)
            while not self._stop.is_set():
                chunk = read(CHUNK)
                skipped = min(skip, len(chunk))
                skip -= skipped
                if skipped < len(chunk) or not chunk:
                    self._put(chunk[skipped:])
                if not chunk:
                    return


def detect_compression(path: Path) -> str | None:
    """Return bz2, gz, xz or zst by the file's first bytes, or None for a plain tar."""
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


def _iter_bzip2(raw: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of all streams in pieces of at most `CHUNK`; raises at the first bytes that are not sound."""
    data = raw.read(_BZIP2_INPUT)
    while data:
        stream = bz2.BZ2Decompressor()
        while not stream.eof:
            if stream.needs_input and not data:
                raise EOFError
            if chunk := stream.decompress(data, CHUNK):
                yield chunk
            data = raw.read(_BZIP2_INPUT) if stream.needs_input else b""
        data = stream.unused_data or raw.read(_BZIP2_INPUT)


class RecordFile(NamedTuple):
    """One file of the layout: the folders of its workload (as one path), batch size, trial (None: ``study.json``).

    A tuple: there are half a million in a source, and tuples are made four times as fast.
    """

    folder: str
    batch_size: int
    trial_id: int | None
    name: str
    data: bytes

    @property
    def path(self) -> str:
        """The file's path in its source, for messages."""
        trial = "" if self.trial_id is None else f"{self.trial_id}/"
        return f"{self.folder}/{self.batch_size}/{trial}{self.name}"


@dataclass(frozen=True)
class Skipped:
    """A member of a source that is no record: harmless, or a problem with a text."""

    problem: str | None = None


def iter_archive(stream: ArchiveStream) -> Iterator[RecordFile | Skipped]:
    """Yield every member of the archive.

    Raises:
        DamagedArchiveError: the archive is torn or damaged.
        RecordsError: it is no tar, or passes a limit.
    """
    try:
        archive = tarfile.open(fileobj=stream, mode="r:", tarinfo=BoundedTarInfo)  # type: ignore[call-overload]  # noqa: SIM115
        count = 0
        while (member := archive.next()) is not None:
            archive.members = []  # tarfile keeps every member otherwise
            count += 1
            if count > stream.limits.members:
                raise RecordsError(f"{stream.path}: an archive has at most {stream.limits.members:,} members.")
            yield _read_member(stream, member)
    except tarfile.ReadError as error:
        if stream.tell() <= _TAR_BLOCK:
            raise RecordsError(
                f"{stream.path}: an archive is a tar file, plain or compressed with bzip2, gzip, xz or zstd. "
                f"Found: {one_line(error)}."
            ) from None
        raise stream.damage(one_line(error)) from None
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, RecordsError):
            raise
        raise stream.damage(one_line(error)) from None
    _check_end(stream)


def _check_end(stream: ArchiveStream) -> None:
    if stream.last != bytes(_TAR_BLOCK):
        raise stream.damage("there is no end mark behind the last file")
    while rest := stream.read():
        if rest.strip(b"\0"):
            raise stream.damage("there is data behind the end mark")


def _read_member(stream: ArchiveStream, member: tarfile.TarInfo) -> RecordFile | Skipped:
    quoted = one_line(repr(member.name))
    if member.isdir():
        return Skipped()
    if not member.isreg() or member.issparse():
        kind = _describe_kind(member)
        return Skipped(f"{quoted}: an archive of records has regular files and folders only. Found a {kind}.")
    place = locate(member.name)
    if place is None or isinstance(place, str):
        return Skipped(None if place is None else f"{quoted}: {place}")
    if member.size > stream.limits.member_bytes:
        raise RecordsError(
            f"{stream.path}: a file in an archive has at most {stream.limits.member_bytes:,} bytes. Found {quoted} "
            f"with {member.size:,}."
        )
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise stream.damage(f"the data of {quoted} ends too early")
    return RecordFile(*place, data)


def locate(name: str) -> tuple[str, int, int | None, str] | str | None:
    """Return folder, batch size, trial and file name of a path; None for no record; a text for a name not allowed.

    >>> locate("batch_science/mnist/fc_1024/sgd/64/3/metadata.json")
    ('batch_science/mnist/fc_1024/sgd', 64, 3, 'metadata.json')
    >>> locate("batch_science/README.md")
    """
    parts = name.split("/")
    while parts and parts[0] == ".":
        parts.pop(0)
    if len(name) > _MAX_NAME or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        return "a name in an archive stays inside it: no '..', no leading '/', no backslash."
    file = parts.pop() if parts else ""
    if file not in (STUDY_FILE, TRIAL_FILE, MEASUREMENTS_FILE):
        return None
    numbers = [folder_number(part) for part in parts[-2 if file != STUDY_FILE else -1 :]]
    folders = parts[: -len(numbers)]
    if len(folders) < 3 or None in numbers or numbers[0] == 0:
        return "a record lies in DATASET/MODEL/OPTIMIZER/BATCH_SIZE, its trials in folders named by whole numbers."
    if len(folders) > MAX_DEPTH or not all(is_safe_segment(part) for part in folders):
        return "the names of folders are letters, digits and _ . + -, and there are not too many of them."
    batch_size, trial_id = numbers[0], numbers[1] if len(numbers) == 2 else None
    assert batch_size is not None
    return "/".join(folders), batch_size, trial_id, file


def _describe_kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return "link"
    if member.isdev():
        return "device or pipe"
    return "sparse file" if member.issparse() else "file of an unknown kind"
