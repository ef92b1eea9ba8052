"""The journals of a study's running trials: appended to, read back, cut where a write failed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from batchscale.errors import RecordsError
from batchscale.records.durable import replace_file
from batchscale.records.filesystem import FileSystem
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.handles import HANDLES, Handles
from batchscale.records.tree.journal import JournalOwner, JournalText, decode_journal, encode_line, line_key
from batchscale.records.tree.layout import MAX_CSV_BYTES, StudyPaths
from batchscale.records.tree.measurements import Measurement, format_header, format_row
from batchscale.records.tree.read import Notice


@dataclass
class _KnownJournal:
    """What must be known of a journal to append to it."""

    key: int
    metrics: tuple[str, ...]
    last_step: int


class Journals:
    """The journals in one study's working folder.

    An append that the file system refuses leaves no trace: whatever part of it reached the disk is cut off when the
    journal is next used, so that the same append can be made again. A journal stays open while there are handles; when
    there are none left, the study's journal that was not used for longest is closed for it.
    """

    def __init__(self, fs: FileSystem, paths: StudyPaths, notice: Notice, handles: Handles = HANDLES) -> None:
        self.spec_hash: str | None = None
        self._fs, self._paths, self._notice, self._handles = fs, paths, notice, handles
        self._known: dict[int, _KnownJournal] = {}
        self._open: dict[int, int] = {}  # the handles of those that are open, the one used last at the end
        self._cut_to: dict[int, int | None] = {}  # after a failed append: the last step before it, if known

    def append(self, trial_id: int, measurements: Sequence[Measurement], sync: bool) -> None:
        """Add rows behind those that are there."""
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
        """The journal, its torn end cut off on disk so that nothing is ever appended behind it; None if there is none.

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
                f"{text.owner}, where {self._owner(trial_id)} is wanted. Remove the file."
            )

    def write(self, trial_id: int, text: JournalText) -> JournalText:
        """Put this journal in the place of what is there, in one step; it names the trial from then on."""
        owner = str(self._owner(trial_id))
        replace_file(self._fs, self._path(trial_id), self._paths.working, text.encode(owner))
        return replace(text, num_dropped_bytes=0, owner=owner)

    def exists(self, trial_id: int) -> bool:
        """Whether the trial has a journal."""
        return self._fs.exists(self._path(trial_id))

    def remove(self, trial_id: int) -> None:
        """Remove the trial's journal, if there is one."""
        self.close(trial_id)
        if self.exists(trial_id):
            self._fs.unlink(self._path(trial_id))
        self._cut_to.pop(trial_id, None)

    def close(self, trial_id: int) -> None:
        """Let go of the journal's file, and of what is known of it."""
        self._known.pop(trial_id, None)
        self._close_file(trial_id)

    def close_all(self) -> None:
        """Let go of all files."""
        for trial_id in list(self._known):
            self.close(trial_id)

    def _path(self, trial_id: int) -> Path:
        return self._paths.journal(trial_id)

    def _owner(self, trial_id: int) -> JournalOwner:
        return JournalOwner(self._paths.workload, self._paths.batch_size, trial_id, self.spec_hash)

    def _get(self, trial_id: int, first: Measurement) -> _KnownJournal:
        if trial_id not in self._known:
            text = self.load(trial_id)
            if text is None or not text.lines:
                text = self.write(trial_id, JournalText((format_header(list(first.values)),), (), 0))
            self._known[trial_id] = _KnownJournal(line_key(text.owner), text.metrics, text.last_step)
        return self._known[trial_id]

    @contextmanager
    def _opened(self, trial_id: int) -> Iterator[int]:
        """The journal's handle; it stays open if there is one to keep."""
        if trial_id in self._open:
            handle = self._open[trial_id] = self._open.pop(trial_id)
            yield handle
            return
        keep = self._handles.take()
        if not keep and self._open:
            self._close_file(next(iter(self._open)))
            keep = self._handles.take()
        try:
            handle = self._fs.open_append(self._path(trial_id))
        except BaseException:
            if keep:
                self._handles.give_back()
            raise
        if keep:
            self._open[trial_id] = handle
        try:
            yield handle
        finally:
            if not keep:
                self._fs.close(handle)

    def _close_file(self, trial_id: int) -> None:
        handle = self._open.pop(trial_id, None)
        if handle is not None:
            self._handles.give_back()
            self._fs.close(handle)

    @contextmanager
    def _suspected_on_failure(self, trial_id: int) -> Iterator[None]:
        """After a failed write or sync nothing is known of the file on disk: the next use writes it anew."""
        try:
            yield
        except OSError:
            journal = self._known.get(trial_id)
            if journal is not None or trial_id not in self._cut_to:
                self._cut_to[trial_id] = journal.last_step if journal else None
            self.close(trial_id)
            raise
