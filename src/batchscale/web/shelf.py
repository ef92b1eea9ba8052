"""Records that were opened lately, and what was worked out from them, until the files change.

Reading a tree and analysing it take from milliseconds to seconds: it is done once per change, by one thread at a time,
and a place that is being written is read again at most every few seconds.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from batchscale.records import MANIFEST, STUDY_FILE, WORKING_FOLDER, Records, read_records

KEPT_PLACES = 12
KEPT_ANSWERS = 64
READ_AGAIN_S = 3.0

_T = TypeVar("_T")


@dataclass
class _Opened:
    signature: int
    records: Records
    notices: list[str]
    checked_at: float
    answers: "OrderedDict[str, Any]" = field(default_factory=OrderedDict)
    lock: Any = field(default_factory=threading.RLock)


class OpenRecords:
    """The records of the latest places, and answers worked out from them."""

    def __init__(self) -> None:
        self._opened: OrderedDict[Path, _Opened] = OrderedDict()
        self._lock = threading.RLock()

    def records(self, path: Path) -> Records:
        """The records at a path as they are now, or were a few seconds ago."""
        return self._open(path).records

    def notices(self, path: Path) -> list[str]:
        """What was damaged there and left out."""
        return self._open(path).notices

    def answer(self, path: Path, key: str, work: Callable[[Records], _T]) -> _T:
        """What ``work`` makes of the records at a path, kept under ``key`` until they change."""
        opened = self._open(path)
        with opened.lock:
            if key not in opened.answers:
                opened.answers[key] = work(opened.records)
                while len(opened.answers) > KEPT_ANSWERS:
                    opened.answers.popitem(last=False)
            found: _T = opened.answers[key]
            return found

    def _open(self, path: Path) -> _Opened:
        with self._lock:
            opened = self._opened.get(path)
            if opened is not None and time.monotonic() - opened.checked_at < READ_AGAIN_S:
                return opened
            signature = signature_of(path)
            if opened is None or opened.signature != signature:
                notices: list[str] = []
                opened = _Opened(signature, read_records(path, notices.append), notices, 0.0)
                self._opened[path] = opened
                while len(self._opened) > KEPT_PLACES:
                    self._opened.popitem(last=False)
            self._opened.move_to_end(path)
            opened.checked_at = time.monotonic()
            return opened


def signature_of(path: Path) -> int:
    """A number that changes when a study or a trial is added: the times of folders, not of every file."""
    manifest = path / MANIFEST
    if manifest.exists():
        return manifest.stat().st_mtime_ns
    times = [path.stat().st_mtime_ns]
    for folder, names, files in os.walk(path):
        is_study = STUDY_FILE in files
        names[:] = [] if is_study else [name for name in names if name != WORKING_FOLDER]
        times.append(Path(folder).stat().st_mtime_ns)
        if is_study:
            times.append(Path(folder, STUDY_FILE).stat().st_mtime_ns)
    return hash(tuple(times))
