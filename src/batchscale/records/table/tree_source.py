"""A records tree as the source of an import."""

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, final

from batchscale.errors import RecordsError
from batchscale.records.archive.members import Member, Passed, RecordFile
from batchscale.records.filesystem import FileMark
from batchscale.records.table.source_interface import Source
from batchscale.records.tree.folders import StudyFolder, iter_studies, name_folder, read_marked_file
from batchscale.records.tree.layout import (
    MAX_CSV_BYTES,
    MAX_JSON_BYTES,
    MEASUREMENTS_FILE,
    STUDY_FILE,
    TRIAL_FILE,
)


@final
class TreeSource(Source):
    """A records tree. Positions are counts of files."""

    has_root = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._studies = list(iter_studies(path))
        self._total, self._done = sum(map(_count_files, self._studies)), 0
        self._read = _ReadFiles(self._studies)
        if not self._total:
            raise RecordsError(
                f"A records tree holds DATASET/MODEL/OPTIMIZER/BATCH_SIZE/study.json. Found no study in {path}."
            )
        self.facts = {"kind": "tree", "name": path.absolute().name, "sha256": None}

    def fingerprint(self, position: int) -> dict[str, Any]:
        """Names and marks of the files before the position: as they were when read, or as they are if none was."""
        return {"kind": "tree", "path": str(self.path.absolute()), "state": self._read.digest(position)}

    def entries(self, position: int) -> Iterator[Member]:
        """Every file of the layout behind the first ``position`` ones."""
        if not position:
            self._read = _ReadFiles(self._studies)  # a fingerprint that did not fit is of no more use
        self._done = 0
        for study in self._studies:
            count = _count_files(study)
            if self._done + count <= position:
                self._done += count
                continue
            yield from self._study_entries(study, position)

    def fraction(self) -> float:
        """The share of the files."""
        return self._done / self._total

    def _study_entries(self, study: StudyFolder, position: int) -> Iterator[Member]:
        done = self._done
        try:
            text, mark = read_marked_file(study.path / STUDY_FILE, MAX_JSON_BYTES)
            workload, size = name_folder(study, text)
        except RecordsError as error:
            self._done += _count_files(study)
            self._read.marks.extend(_mark(path) for path in islice(_files(study), max(0, position - done), None))
            yield Member(Passed(f"{error} The study is left out."), self._done)
            return
        folder = str(workload)
        self._done += 1
        if self._done > position:
            self._read.marks.append(mark)
            yield Member(RecordFile(folder, size, None, STUDY_FILE, text), self._done)
        for trial_id in study.trial_ids:
            for name in (TRIAL_FILE, MEASUREMENTS_FILE):
                self._done += 1
                if self._done > position:
                    yield Member(self._read_trial(study, (folder, size, trial_id, name)), self._done)

    def _read_trial(self, study: StudyFolder, place: tuple[str, int, int, str]) -> RecordFile | Passed:
        folder, size, trial_id, name = place
        path = f"{study.path}/{trial_id}/{name}"
        try:
            data, mark = read_marked_file(path, MAX_CSV_BYTES)
        except RecordsError as error:
            self._read.marks.append(_mark(path))
            return Passed(str(error))
        self._read.marks.append(mark)
        return RecordFile(folder, size, trial_id, name, data)


class _ReadFiles:
    """The files of a tree in order, with the marks of those that were read and are not in the digest yet."""

    def __init__(self, studies: list[StudyFolder]) -> None:
        self.marks: deque[FileMark | None] = deque()
        self._files = (file for study in studies for file in _files(study))
        self._count = 0
        self._digest = hashlib.sha256()

    def digest(self, position: int) -> str:
        """The checksum of the names and marks of the first files, as many as the position says."""
        for file in islice(self._files, position - self._count):
            mark = self.marks.popleft() if self.marks else _mark(file)
            self._digest.update(f"{file}\0{mark}\n".encode(errors="surrogateescape"))
        self._count = position
        return self._digest.hexdigest()


def _count_files(study: StudyFolder) -> int:
    return 1 + 2 * len(study.trial_ids)


def _files(study: StudyFolder) -> Iterator[str]:
    """The path of every file that a study has or should have, in order; as text, of which there are many."""
    yield f"{study.path}/{STUDY_FILE}"
    for trial_id in study.trial_ids:
        for name in (TRIAL_FILE, MEASUREMENTS_FILE):
            yield f"{study.path}/{trial_id}/{name}"


def _mark(path: str) -> FileMark | None:
    try:
        state = os.stat(path)  # noqa: PTH116 - a Path for each of half a million files takes as long as reading them
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns
