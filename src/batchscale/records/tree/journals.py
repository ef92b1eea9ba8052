"""The journals of a study's running trials: appended to, read back, cut where a write failed."""

import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from batchscale.errors import RecordsError
from batchscale.records.durable import FileSystem, replace_file
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.journal import JournalOwner, JournalText, decode_journal, encode_line, line_key
from batchscale.records.tree.layout import MAX_CSV_BYTES, StudyPaths
from batchscale.records.tree.measurements import Measurement, format_header, format_row
from batchscale.records.tree.read import Notice

SHARE = 0.5
"""The share of this process's file handles that journals may keep open."""


class Handles:
    """A number of open file handles that all studies share. Any thread may acquire and release one."""

    def __init__(self, limit: int | None = None) -> None:
        """Allow up to ``limit`` handles; without one, a share of the system's current limit."""
        self._limit = limit
        self._count = 0
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        """Acquire a handle; False if there is none."""
        limit = _system_limit() if self._limit is None else self._limit
        with self._lock:
            if self._count >= limit:
                return False
            self._count += 1
            return True

    def release(self) -> None:
        """Release a handle."""
        with self._lock:
            self._count -= 1


def _system_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else int(SHARE * soft)


HANDLES = Handles()
"""The handles of this process."""


@dataclass
class _JournalState:
    """The state of a journal that an append needs."""

    key: int
    metrics: tuple[str, ...]
    last_step: int


class Journals:
    """The journals in one study's working folder.

    An append that the file system refuses leaves no trace: whatever part of it reached the disk is cut off when the
    journal is next used, so that the same append can be made again. A journal stays open while there are handles; if
    there are no more, the journal of this study that was used least recently is closed.
    """

    def __init__(self, fs: FileSystem, paths: StudyPaths, notice: Notice, handles: Handles = HANDLES) -> None:
        self.spec_hash: str | None = None
        self._fs, self._paths, self._notice, self._handles = fs, paths, notice, handles
        self._states: dict[int, _JournalState] = {}
        self._open: dict[int, int] = {}  # the handles of open journals, the last used one at the end
        self._cut_to: dict[int, int | None] = {}  # after a failed append: the last step before it, None if unknown

    def append(self, trial_id: int, measurements: Sequence[Measurement], sync: bool) -> None:
        """Append rows."""
        with self._suspected_on_failure(trial_id):
            journal = self._get(trial_id, measurements[0])
            last = journal.last_step
            lines = []
            for measurement in measurements:
                if measurement.step <= last:
                    raise RecordsError(
                        f"Trial {trial_id}: steps grow. Found step {measurement.step} after step {last}."
                    )
                lines.append(encode_line(format_row(measurement, journal.metrics), journal.key))
                last = measurement.step
            with self._opened(trial_id) as handle:
                self._fs.write(handle, b"".join(lines))
                if sync:
                    self._fs.fdatasync(handle)
            journal.last_step = last

    def load(self, trial_id: int) -> JournalText | None:
        """Return the journal, None if there is none; a torn end is cut off on disk, so that no append follows it.

        Raises:
            RecordsError: it is another trial's.
        """
        path = self._path(trial_id)
        if not self._fs.exists(path):
            return None
        text = decode_journal(read_file(path, MAX_CSV_BYTES, self._fs))
        self.require_owner(trial_id, text)
        suspect = trial_id in self._cut_to
        if suspect and (step := self._cut_to[trial_id]) is not None:
            text = text.cut(step)
        if text.num_dropped_bytes:
            self._notice(
                f"{path}: {text.num_dropped_bytes} bytes behind step {text.last_step} were torn and are dropped."
            )
        if text.num_dropped_bytes or suspect or text.owner is None:
            self.close(trial_id)
            text = self.write(trial_id, text)
            self._cut_to.pop(trial_id, None)
        return text

    def require_owner(self, trial_id: int, text: JournalText) -> None:
        """Refuse a journal that names another trial."""
        if text.owner is not None and not self._owner(trial_id).is_named_by(text.owner):
            raise RecordsError(
                f"{self._path(trial_id)}: a journal belongs to the trial that it is named for. Found that of "
                f"{text.owner}, where {self._owner(trial_id)} belongs. Remove the file."
            )

    def write(self, trial_id: int, text: JournalText) -> JournalText:
        """Replace the trial's journal in one step by this one, which names the trial from then on."""
        owner = str(self._owner(trial_id))
        replace_file(self._fs, self._path(trial_id), self._paths.working, text.encode(owner))
        return replace(text, num_dropped_bytes=0, owner=owner)

    def exists(self, trial_id: int) -> bool:
        """True if the trial has a journal."""
        return self._fs.exists(self._path(trial_id))

    def remove(self, trial_id: int) -> None:
        """Remove the trial's journal, if there is one."""
        self.close(trial_id)
        if self.exists(trial_id):
            self._fs.unlink(self._path(trial_id))
        self._cut_to.pop(trial_id, None)

    def close(self, trial_id: int) -> None:
        """Close the journal's file and drop its state."""
        self._states.pop(trial_id, None)
        self._close_file(trial_id)

    def close_all(self) -> None:
        """Close all files."""
        for trial_id in list(self._states):
            self.close(trial_id)

    def _path(self, trial_id: int) -> Path:
        return self._paths.journal(trial_id)

    def _owner(self, trial_id: int) -> JournalOwner:
        return JournalOwner(self._paths.workload, self._paths.batch_size, trial_id, self.spec_hash)

    def _get(self, trial_id: int, first: Measurement) -> _JournalState:
        if trial_id not in self._states:
            text = self.load(trial_id)
            if text is None or not text.lines:
                text = self.write(trial_id, JournalText((format_header(list(first.values)),), (), 0))
            self._states[trial_id] = _JournalState(line_key(text.owner), text.metrics, text.last_step)
        return self._states[trial_id]

    @contextmanager
    def _opened(self, trial_id: int) -> Iterator[int]:
        """Give the journal's handle; it stays open if one more may."""
        if trial_id in self._open:
            handle = self._open[trial_id] = self._open.pop(trial_id)
            yield handle
            return
        stays_open = self._handles.acquire()
        if not stays_open and self._open:
            self._close_file(next(iter(self._open)))
            stays_open = self._handles.acquire()
        try:
            handle = self._fs.open_append(self._path(trial_id))
        except BaseException:
            if stays_open:
                self._handles.release()
            raise
        if stays_open:
            self._open[trial_id] = handle
        try:
            yield handle
        finally:
            if not stays_open:
                self._fs.close(handle)

    def _close_file(self, trial_id: int) -> None:
        handle = self._open.pop(trial_id, None)
        if handle is not None:
            self._handles.release()
            self._fs.close(handle)

    @contextmanager
    def _suspected_on_failure(self, trial_id: int) -> Iterator[None]:
        """After a failed write or sync the file on disk may be in any state: the next use writes it anew."""
        try:
            yield
        except OSError:
            journal = self._states.get(trial_id)
            if journal is not None or trial_id not in self._cut_to:
                self._cut_to[trial_id] = journal.last_step if journal else None
            self.close(trial_id)
            raise
