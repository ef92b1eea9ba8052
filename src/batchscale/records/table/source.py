"""The sources of an import: an archive, its checksum verified, or a records tree."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from batchscale.errors import RecordsError, one_line
from batchscale.records.archive import ArchiveLimits, ArchiveStream, RecordFile, Skipped, iter_archive
from batchscale.records.tree.folders import StudyFolder, iter_studies, name_folder, read_file
from batchscale.records.tree.layout import MAX_CSV_BYTES, MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE

PUBLISHED_NAME = "batch_science"
PUBLISHED_FILE = "batch_science_data.tar.bz2"
PUBLISHED_SHA256 = "6460ab86a6ab0f22a02e1c9b982e1ca31220bf41f669304ce86f14d19053f435"
_PUBLISHED_MEGABYTES = 802

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class Source(ABC):
    """A stream of record files.

    ``description`` goes into the table's manifest. ``has_root``: one top folder may hold everything.
    """

    description: dict[str, Any]
    has_root: bool

    @abstractmethod
    def entries(self) -> Iterator[RecordFile | Skipped]:
        """Yield every file."""

    @abstractmethod
    def fraction(self) -> float:
        """Return about how much of the source was read, from 0 to 1."""


@final
class ArchiveSource(Source):
    """A tar archive."""

    has_root = True

    def __init__(self, path: Path, limits: ArchiveLimits, verify: str | None) -> None:
        self.path, self.limits = path, limits
        self._stream: ArchiveStream | None = None
        digest = _verified_checksum(path, verify)
        self.description = {
            "kind": "archive",
            "name": path.name,
            "bytes": path.stat().st_size,
            "sha256": digest,
            "published": digest == PUBLISHED_SHA256,
        }

    def entries(self) -> Iterator[RecordFile | Skipped]:
        """Yield every member."""
        with ArchiveStream(self.path, self.limits) as stream:
            self._stream = stream
            yield from iter_archive(stream)

    def fraction(self) -> float:
        """Return the share of the compressed file."""
        return self._stream.fraction() if self._stream else 0.0


@final
class TreeSource(Source):
    """A records tree."""

    has_root = False

    def __init__(self, path: Path) -> None:
        self._studies = list(iter_studies(path))
        self._total, self._done = sum(map(_count_files, self._studies)), 0
        if not self._total:
            raise RecordsError(
                f"A records tree holds DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json. Found no study in {path}."
            )
        self.description = {"kind": "tree", "name": path.absolute().name, "sha256": None}

    def entries(self) -> Iterator[RecordFile | Skipped]:
        """Yield every file of the layout."""
        for study in self._studies:
            try:
                text = read_file(study.path / STUDY_FILE)
                workload, size = name_folder(study, text)
            except RecordsError as error:
                self._done += _count_files(study)
                yield Skipped(f"{error} The study is left out.")
                continue
            folder = str(workload)
            self._done += 1
            yield RecordFile(folder, size, None, STUDY_FILE, text)
            for trial_id in study.trial_ids:
                for name in (TRIAL_FILE, MEASUREMENTS_FILE):
                    self._done += 1
                    try:  # the path as text: a Path for each of half a million files takes as long as reading them
                        data = read_file(f"{study.path}/{trial_id}/{name}", MAX_CSV_BYTES)
                    except RecordsError as error:
                        yield Skipped(str(error))
                        continue
                    yield RecordFile(folder, size, trial_id, name, data)

    def fraction(self) -> float:
        """Return the share of the files."""
        return self._done / self._total


def open_source(path: Path, limits: ArchiveLimits, verify: str | None) -> Source:
    """Open the archive or tree at ``path``, its checksum verified."""
    if path.is_dir():
        if verify:
            raise RecordsError(f"{path}: --verify is for the checksum of an archive. Found a directory.")
        return TreeSource(path)
    if not path.is_file():
        raise RecordsError(f"{path}: records are an archive, a table or a directory. Found nothing of these.")
    return ArchiveSource(path, limits, verify)


def looks_published(description: dict[str, Any]) -> bool:
    """True if an archive has about the size of the published one without being it: perhaps a damaged download."""
    size = description.get("bytes", 0)
    return not description.get("published") and size // 1_000_000 in (_PUBLISHED_MEGABYTES - 1, _PUBLISHED_MEGABYTES)


def _count_files(study: StudyFolder) -> int:
    return 1 + 2 * len(study.trial_ids)


def _verified_checksum(path: Path, verify: str | None) -> str:
    """Return the archive's SHA-256, compared with ``verify`` and, by its name, with the published one."""
    expected = PUBLISHED_SHA256 if verify == PUBLISHED_NAME else verify
    if expected is None and path.name == PUBLISHED_FILE:
        expected = PUBLISHED_SHA256
    if expected is not None and not _SHA256.fullmatch(expected):
        raise RecordsError(
            f"--verify takes a SHA-256 of 64 hexadecimal digits or the name {PUBLISHED_NAME}. Found {one_line(verify)}."
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if expected is not None and digest != expected.lower():
        raise RecordsError(
            f"{path}: the archive must have the SHA-256 {expected.lower()}. Found {digest}. Download it again; if it "
            "is another archive, rename it or leave out --verify."
        )
    return digest
