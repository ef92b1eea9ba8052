"""Where an import reads from: an archive or a records tree, as one stream of files with positions to resume at."""

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive.members import Member, Passed, RecordFile, iter_archive
from batchscale.records.archive.stream import ArchiveLimits, ArchiveStream
from batchscale.records.tree.folders import StudyFolder, iter_studies, name_folder, read_file
from batchscale.records.tree.layout import MAX_CSV_BYTES, MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE

PUBLISHED_NAME = "batch_science"
PUBLISHED_FILE = "batch_science_data.tar.bz2"
PUBLISHED_SHA256 = "6460ab86a6ab0f22a02e1c9b982e1ca31220bf41f669304ce86f14d19053f435"
_PUBLISHED_MEGABYTES = 802

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class Source(ABC):
    """A source of record files.

    ``fingerprint`` changes when the source does: an import resumes only if it is equal. ``facts`` go into the table's
    manifest. ``has_root`` says whether one top folder may hold everything.
    """

    fingerprint: dict[str, Any]
    facts: dict[str, Any]
    has_root: bool

    @abstractmethod
    def entries(self, position: int) -> Iterator[Member]:
        """Every file from a position on that an earlier entry named; 0 is the start."""

    @abstractmethod
    def fraction(self) -> float:
        """About how much of the source was read, from 0 to 1."""


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
        self.fingerprint = self.facts

    def entries(self, position: int) -> Iterator[Member]:
        """Every member from the position on."""
        with ArchiveStream(self.path, self.limits) as stream:
            self._stream = stream
            stream.seek(position)
            yield from iter_archive(stream)

    def fraction(self) -> float:
        """The share of the compressed file."""
        return self._stream.fraction() if self._stream else 0.0


@final
class TreeSource(Source):
    """A records tree. Positions are counts of files."""

    has_root = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._studies = list(iter_studies(path))
        digest, self._total, self._done = hashlib.sha256(), 0, 0
        for study in self._studies:
            for _, _, file in _files(study):
                digest.update(f"{file}\0{_mark(file)}\n".encode(errors="surrogateescape"))
                self._total += 1
        if not self._total:
            raise RecordsError(
                f"A records tree holds DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json. Found no study in {path}."
            )
        self.facts = {"kind": "tree", "name": path.absolute().name, "sha256": None}
        self.fingerprint = {"kind": "tree", "path": str(path.absolute()), "state": digest.hexdigest()}

    def entries(self, position: int) -> Iterator[Member]:
        """Every file of the layout behind the first ``position`` ones."""
        self._done = 0
        for study in self._studies:
            count = 1 + 2 * len(study.trial_ids)
            if self._done + count <= position:
                self._done += count
                continue
            yield from self._study_entries(study, position)

    def fraction(self) -> float:
        """The share of the files."""
        return self._done / self._total

    def _study_entries(self, study: StudyFolder, position: int) -> Iterator[Member]:
        try:
            text = read_file(study.path / STUDY_FILE)
            workload, size = name_folder(study, text)
        except RecordsError as error:
            self._done += 1 + 2 * len(study.trial_ids)
            yield Member(Passed(f"{error} The study is left out."), self._done)
            return
        folder = str(workload)
        for trial_id, name, path in _files(study):
            self._done += 1
            if self._done <= position:
                continue
            found: RecordFile | Passed
            try:
                data = text if trial_id is None else read_file(path, MAX_CSV_BYTES)
                found = RecordFile(folder, size, trial_id, name, data)
            except RecordsError as error:
                found = Passed(str(error))
            yield Member(found, self._done)


def _files(study: StudyFolder) -> Iterator[tuple[int | None, str, str]]:
    """Trial, name and path of every file that a study has or should have; as text, of which there are many."""
    yield None, STUDY_FILE, f"{study.path}/{STUDY_FILE}"
    for trial_id in study.trial_ids:
        for name in (TRIAL_FILE, MEASUREMENTS_FILE):
            yield trial_id, name, f"{study.path}/{trial_id}/{name}"


def _mark(path: str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)  # noqa: PTH116 - a Path for each of half a million files takes as long as reading them
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


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
