"""A cache of records, and of results computed from them, until the files change.

A folder that no run writes is read again as soon as its files have changed. A folder that a run writes changes all the
time: it is read again by the first request after a pause, while other requests get the records from before. The pause
is a multiple of the time that reading took, so that watching a run does not slow it down.
"""

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from batchscale.errors import BatchscaleError
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.records.table.files import MANIFEST
from batchscale.records.tree.layout import STUDY_FILE, WORKING_FOLDER
from batchscale.run.status import is_running
from batchscale.web.refusals import RefusedError

MAX_FOLDERS = 12
MAX_RESULTS = 64
CHECK_EVERY_S = 0.5
READ_EVERY_S = 3.0
PAUSE = 80.0  # of a folder that a run writes, in times of what reading it took
READ_ERRORS = (BatchscaleError, RefusedError, OSError, pl.exceptions.PolarsError)

_LOG = logging.getLogger("batchscale.web")
_T = TypeVar("_T")


@dataclass
class _CachedFolder:
    """The records of a folder, and results computed from them by key, the latest used last."""

    signature: int
    records: Records
    notices: list[str]
    read_s: float
    checked_at: float = field(default_factory=time.monotonic)
    results: "OrderedDict[str, Any]" = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    key_locks: dict[str, threading.Lock] = field(default_factory=dict)

    def compute(self, key: str, work: Callable[[Records], _T]) -> _T:
        """Return the result of a key, computed by the first thread that asks; others wait for it."""
        with self.lock:
            key_lock = self.key_locks.setdefault(key, threading.Lock())
        with key_lock:
            if key not in self.results:
                result = work(self.records)
                with self.lock:
                    self.results[key] = result
            with self.lock:
                cached: _T = self.results[key]
                self.results.move_to_end(key)
                while len(self.results) > MAX_RESULTS:
                    oldest, _ = self.results.popitem(last=False)
                    self.key_locks.pop(oldest, None)
            return cached


class RecordsCache:
    """The records of the latest folders, and results computed from them. Thread-safe."""

    def __init__(self, is_busy: Callable[[Path], bool] = is_running) -> None:
        self._is_busy = is_busy
        self._folders: OrderedDict[Path, _CachedFolder] = OrderedDict()
        self._lock = threading.Lock()
        self._read_locks: dict[Path, threading.Lock] = {}

    def records(self, path: Path) -> Records:
        """Return the records at a path; of a folder that a run writes, as they were a little while ago."""
        return self._open(path).records

    def notices(self, path: Path) -> list[str]:
        """Return the notices of damaged parts that were met so far."""
        return self._open(path).notices

    def version(self, path: Path) -> int:
        """Return a number that changes when the records do."""
        return self._open(path).signature

    def result(self, path: Path, key: str, work: Callable[[Records], _T]) -> _T:
        """Return what ``work`` makes of the records at a path, cached under ``key`` until they change."""
        return self._open(path).compute(key, work)

    def _open(self, path: Path) -> _CachedFolder:
        cached = self._folders.get(path)
        if cached is None:
            return self._read(path)
        age = time.monotonic() - cached.checked_at
        if age < CHECK_EVERY_S:
            return cached
        if not self._is_busy(path):
            return self._read(path)
        if age < max(READ_EVERY_S, PAUSE * cached.read_s):
            return cached
        cached.checked_at = time.monotonic()  # this thread reads; others get the records from before
        try:
            return self._read(path)
        except READ_ERRORS:
            _LOG.debug("%s is changing: the records from before stay", path, exc_info=True)
            return cached

    def _read(self, path: Path) -> _CachedFolder:
        """Read a folder if it has changed; one thread reads, others wait."""
        with self._lock:
            read_lock = self._read_locks.setdefault(path, threading.Lock())
        with read_lock:
            signature = folder_signature(path)
            cached = self._folders.get(path)
            if cached is None or cached.signature != signature:
                started = time.monotonic()
                notices: list[str] = []
                records = read_records(path, notices.append)
                cached = _CachedFolder(signature, records, notices, time.monotonic() - started)
                self._store(path, cached)
            cached.checked_at = time.monotonic()
            return cached

    def _store(self, path: Path, cached: _CachedFolder) -> None:
        with self._lock:
            self._folders[path] = cached
            self._folders.move_to_end(path)
            while len(self._folders) > MAX_FOLDERS:
                oldest, _ = self._folders.popitem(last=False)
                self._read_locks.pop(oldest, None)


def folder_signature(path: Path) -> int:
    """Return a number that changes when a study or a trial is added, from the times of folders."""
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
