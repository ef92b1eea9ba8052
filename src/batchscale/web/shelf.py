"""Records that were opened lately, and what was worked out from them, until the files change.

Reading a tree and analysing it take from milliseconds to seconds. A folder at rest is read again as soon as its files
changed. A folder that a run writes changes all the time: there visitors get what is known, and one thread in the
background reads again and works out anew what visitors look at, at most for an eightieth of the time, so that watching
does not slow the run down. It is the same thread every time: threads that come and go would each leave holes of their
own in the memory.
"""

import contextlib
import logging
import os
import queue
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
from batchscale.web.freed_memory import FreedMemory
from batchscale.web.refusals import RefusedError

KEPT_PLACES = 12
KEPT_ANSWERS = 64
WARM_ANSWERS = 6  # of those that are kept, how many are made again before anybody asks
WARM_S = 30.0
LOOK_AGAIN_S = 0.5
READ_AGAIN_S = 3.0
REST = 80.0  # the background rests so many times as long as its work took
WORK_ERRORS = (BatchscaleError, RefusedError, OSError, pl.exceptions.PolarsError)

_LOG = logging.getLogger("batchscale.web")
_T = TypeVar("_T")
Work = Callable[[Records], Any]


@dataclass
class _Opened:
    signature: int
    records: Records
    notices: list[str]
    answers: "OrderedDict[str, Any]" = field(default_factory=OrderedDict)
    works: dict[str, tuple[Work, float]] = field(default_factory=dict)  # how answers were made, and when last asked for
    checked_at: float = field(default_factory=time.monotonic)
    spent_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    turns: dict[str, threading.Lock] = field(default_factory=dict)

    def forget_oldest(self) -> None:
        """Keep the answers that were asked for last."""
        while len(self.answers) > KEPT_ANSWERS:
            key, _ = self.answers.popitem(last=False)
            self.works.pop(key, None)
            self.turns.pop(key, None)


class OpenRecords:
    """The records of the latest folders, and answers worked out from them. Thread-safe."""

    def __init__(self, is_busy: Callable[[Path], bool] = is_running) -> None:
        self._is_busy = is_busy
        self._opened: OrderedDict[Path, _Opened] = OrderedDict()
        self._lock = threading.Lock()
        self._opening: dict[Path, threading.Lock] = {}
        self._renewing: set[Path] = set()
        self._due: queue.SimpleQueue[tuple[Path, _Opened]] = queue.SimpleQueue()
        self._background: threading.Thread | None = None
        self._freed = FreedMemory()
        self._fresh = threading.local()  # what the thread in the background is about to put there

    def records(self, path: Path) -> Records:
        """The records at a path as they are now; of a folder that is written, as they were a little while ago."""
        return self._open(path).records

    def notices(self, path: Path) -> list[str]:
        """What was damaged there and left out."""
        return self._open(path).notices

    def version(self, path: Path) -> int:
        """A number that changes when what is answered does; looking at it keeps the folder up to date."""
        return self._open(path).signature

    def answer(self, path: Path, key: str, work: Callable[[Records], _T]) -> _T:
        """What ``work`` makes of the records at a path, kept under ``key`` until they change."""
        opened = self._open(path)
        with opened.lock:
            turn = opened.turns.setdefault(key, threading.Lock())
        with turn:
            if key not in opened.answers:
                made = work(opened.records)
                with opened.lock:
                    opened.answers[key] = made
            with opened.lock:
                found: _T = opened.answers[key]
                opened.answers.move_to_end(key)
                opened.works[key] = (work, time.monotonic())
                opened.forget_oldest()
            return found

    def _open(self, path: Path) -> _Opened:
        fresh: tuple[Path, _Opened] | None = getattr(self._fresh, "opened", None)
        if fresh is not None and fresh[0] == path:
            return fresh[1]
        opened = self._opened.get(path)
        if opened is None:
            return self._read_once(path)
        age = time.monotonic() - opened.checked_at
        if age > LOOK_AGAIN_S:
            if not self._is_busy(path):
                return self._read_once(path)
            if age > max(READ_AGAIN_S, REST * opened.spent_s):
                self._renew_later(path, opened)
        return opened

    def _read_once(self, path: Path) -> _Opened:
        """The folder as it is now, read by whoever comes first; others wait for that."""
        with self._lock:
            turn = self._opening.setdefault(path, threading.Lock())
        with turn:
            signature = signature_of(path)
            opened = self._opened.get(path)
            if opened is None or opened.signature != signature:
                opened = _read(path, signature)
                self._keep(path, opened)
            opened.checked_at = time.monotonic()
            return opened

    def _keep(self, path: Path, opened: _Opened) -> None:
        with self._lock:
            self._opened[path] = opened
            self._opened.move_to_end(path)
            while len(self._opened) > KEPT_PLACES:
                forgotten, _ = self._opened.popitem(last=False)
                self._opening.pop(forgotten, None)

    def _renew_later(self, path: Path, opened: _Opened) -> None:
        with self._lock:
            if path in self._renewing:
                return
            self._renewing.add(path)
            if self._background is None:
                self._background = threading.Thread(target=self._renew_all, name="shelf", daemon=True)
                self._background.start()
        self._due.put((path, opened))

    def _renew_all(self) -> None:
        while True:
            try:
                self._renew(*self._due.get())
            except Exception:  # noqa: BLE001 - the next folder is renewed all the same
                _LOG.exception("a folder could not be read again")

    def _renew(self, path: Path, before: _Opened) -> None:
        started = time.monotonic()
        try:
            signature = signature_of(path)
            if signature != before.signature:
                after = _read(path, signature)
                self._work_again(path, before, after)
                after.spent_s = time.monotonic() - started
                self._keep(path, after)
                self._freed.give_back()
        except WORK_ERRORS:
            _LOG.debug("%s is in the middle of a change: what is known stays", path, exc_info=True)
        finally:
            self._fresh.opened = None
            before.checked_at = time.monotonic()
            with self._lock:
                self._renewing.discard(path)

    def _work_again(self, path: Path, before: _Opened, after: _Opened) -> None:
        """Make the answers that visitors lately asked for from the new records, before anybody sees these."""
        with before.lock:
            asked = sorted(before.works.items(), key=lambda item: item[1][1])
        self._fresh.opened = (path, after)
        for key, (work, at) in asked[-WARM_ANSWERS:]:
            if time.monotonic() - at < WARM_S:
                with contextlib.suppress(*WORK_ERRORS):  # who asks for it will be told
                    self.answer(path, key, work)
        for key, (work, at) in asked:
            if key in after.works:
                after.works[key] = (work, at)  # we did not ask: it cools down as before


def _read(path: Path, signature: int) -> _Opened:
    notices: list[str] = []
    return _Opened(signature, read_records(path, notices.append), notices)


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
