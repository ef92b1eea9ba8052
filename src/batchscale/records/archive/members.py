"""The record files in a tar archive, one after the other, never unpacked.

Only regular files whose names are of the published layout are read. Links, devices, names that lead outside and
duplicates are problems to report; nothing is ever followed or written.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive.stream import ArchiveStream
from batchscale.records.tree.layout import (
    MAX_DEPTH,
    MEASUREMENTS_FILE,
    STUDY_FILE,
    TRIAL_FILE,
    folder_number,
)
from batchscale.spec.workload_name import is_safe_segment

_BLOCK = 512
_MAX_NAME = 4_096


class RecordFile(NamedTuple):
    """One file of the layout: the folders of its workload (as one path), batch size, trial (None: ``study.json``).

    A tuple, as is `Member`: there are half a million in a source, and they are made four times as fast.
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
class Passed:
    """Something in the source that is no record: skipped in silence, or a problem with a text."""

    problem: str | None = None


class Member(NamedTuple):
    """One step through a source: what was found, and the position to go on from."""

    found: RecordFile | Passed
    next_position: int


def iter_archive(stream: ArchiveStream) -> Iterator[Member]:
    """Every member from the stream's position on.

    Raises:
        DamagedArchiveError: the archive is torn or damaged.
        RecordsError: it is no tar, or passes a limit.
    """
    start = stream.tell()
    try:
        archive = tarfile.open(fileobj=stream, mode="r:")  # type: ignore[call-overload]  # noqa: SIM115 - owns nothing
        count = 0
        while (member := archive.next()) is not None:
            archive.members = []  # tarfile keeps every member otherwise
            count += 1
            if count > stream.limits.members:
                raise RecordsError(f"{stream.path}: an archive has at most {stream.limits.members:,} members.")
            yield Member(_read_member(stream, member), archive.offset)
    except tarfile.ReadError as error:
        if start == 0 and stream.tell() <= _BLOCK:
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
    if stream.last != bytes(_BLOCK):
        raise stream.damage("there is no mark of the end behind the last file")
    while rest := stream.read():
        if rest.strip(b"\0"):
            raise stream.damage("there is data behind the mark of the end")


def _read_member(stream: ArchiveStream, member: tarfile.TarInfo) -> RecordFile | Passed:
    name = member.name
    shown = one_line(repr(name))
    if member.isdir():
        return Passed()
    if not member.isreg() or member.issparse():
        return Passed(f"{shown}: an archive of records has regular files and folders only. Found a {_kind(member)}.")
    place = locate(name)
    if place is None or isinstance(place, str):
        return Passed(None if place is None else f"{shown}: {place}")
    if member.size > stream.limits.member_bytes:
        raise RecordsError(
            f"{stream.path}: a file in an archive has at most {stream.limits.member_bytes:,} bytes. Found {shown} with "
            f"{member.size:,}."
        )
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise stream.damage(f"the data of {shown} ends too early")
    return RecordFile(*place, data)


def locate(name: str) -> tuple[str, int, int | None, str] | str | None:
    """Folder, batch size, trial and file name that a path names; None for no record; a text for a name not allowed.

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


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return "link"
    if member.isdev():
        return "device or pipe"
    return "sparse file" if member.issparse() else "file of an unknown kind"
