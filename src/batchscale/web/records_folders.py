"""The folders of records: every tree and table under the folders that the server was started with.

Each has an id made from its path; browsers send ids only. Links are not followed, and every id is looked up in the list
that the walk made, so no text from outside becomes a path. A walk is limited in time, because somebody may serve a home
folder: folders near the top come first.
"""

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import one_line
from batchscale.records.table.files import MANIFEST, is_table
from batchscale.records.tree.layout import MAX_DEPTH, STUDY_FILE, WORKING_FOLDER, folder_number
from batchscale.web.refusals import RefusedError

MAX_FOLDERS = 5000
MAX_LEVELS = MAX_DEPTH + 4
LEVELS_ABOVE_STUDY = 4  # batch size, optimizer, model, data set
WALK_EVERY_S = 5.0
MAX_WALK_S = 3.0
REST_PER_WALK = 10
"""A walk is not repeated for so many times as long as it took."""


@dataclass(frozen=True)
class RecordsFolder:
    """One records tree or table; ``name`` is its path below the folder it was found in, as printable text."""

    id: str
    path: Path
    name: str


class RecordsFolders:
    """All records in the served folders; the list is renewed when it is older than a few seconds. Thread-safe."""

    def __init__(self, served: tuple[Path, ...], state: Path | None = None, max_walk_s: float = MAX_WALK_S) -> None:
        self.served = tuple(folder.resolve() for folder in served)
        self.is_complete = True
        self._state = None if state is None else state.resolve()
        self._max_walk_s = max_walk_s
        self._walk_s = 0.0
        self._lock = threading.Lock()
        self._folders: dict[str, RecordsFolder] = {}
        self._by_root: dict[str, RecordsFolder] = {}
        self._tables: dict[str, tuple[int, bool]] = {}
        self._walked_at = float("-inf")

    def all(self, *, fresh: bool = False) -> list[RecordsFolder]:
        """Return all folders of records, in order of names."""
        with self._lock:
            now = time.monotonic()
            if fresh or now - self._walked_at > max(WALK_EVERY_S, REST_PER_WALK * self._walk_s):
                self._folders = {folder.id: folder for folder in self._walk()}
                self._walked_at = time.monotonic()
                self._walk_s = self._walked_at - now
            return list(self._folders.values())

    def find(self, id_: str) -> RecordsFolder:
        """Return the folder of an id.

        Raises:
            RefusedError: it does not exist.
        """
        folder = self._folders.get(id_) or {item.id: item for item in self.all()}.get(id_)
        if folder is None:
            folder = {item.id: item for item in self.all(fresh=True)}.get(id_)
        if folder is None or folder.path.resolve() != folder.path:
            raise RefusedError(404, "There are no records of this id, or not any more.")
        return folder

    def _walk(self) -> list[RecordsFolder]:
        """Walk the served folders; folders of the last walk are reused, because there may be a thousand."""
        folders: dict[str, RecordsFolder] = {}
        end = time.monotonic() + self._max_walk_s
        self.is_complete = True
        for top in self.served:
            roots = {root for root in self._roots(str(top), end) if not self._holds_state(root)}
            for root in sorted(roots - folders.keys()):
                if len(folders) < MAX_FOLDERS and not any(above in roots for above in _above(root)):
                    folders[root] = self._by_root.get(root) or make_records_folder(Path(root), top)
        self._by_root = folders
        return sorted(folders.values(), key=lambda item: item.name)

    def _roots(self, top: str, end: float) -> Iterator[str]:
        """Yield the roots of records at and below a path, level by level, until the time ends; text is faster."""
        waiting = deque([(top, 0)])
        while waiting:
            if time.monotonic() > end:
                self.is_complete = False
                return
            path, depth = waiting.popleft()
            try:
                with os.scandir(path) as entries:
                    names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except OSError:
                continue
            if names.get(WORKING_FOLDER) or (MANIFEST in names and self._is_table(path)):
                yield path
            elif STUDY_FILE in names and folder_number(path.rpartition("/")[2]) is not None:
                inside = [above for above in _above(path) if above == top or above.startswith(f"{top.rstrip('/')}/")]
                yield (inside[:LEVELS_ABOVE_STUDY] or [path])[-1]
            elif depth < MAX_LEVELS:
                folders = [name for name, is_folder in names.items() if is_folder and not name.startswith(".")]
                waiting.extend((f"{path.rstrip('/')}/{name}", depth + 1) for name in folders)

    def _holds_state(self, root: str) -> bool:
        """True if the state of the server lies in records, or is taken for them: these are not served."""
        return self._state is not None and (self._state.is_relative_to(root) or Path(root).is_relative_to(self._state))

    def _is_table(self, path: str) -> bool:
        """True if a folder with a manifest is a table; checked again only if the manifest has changed."""
        try:
            changed_at = os.stat(f"{path}/{MANIFEST}").st_mtime_ns  # noqa: PTH116 - text is faster, and there are a thousand
        except OSError:
            return False
        checked = self._tables.get(path)
        if checked is None or checked[0] != changed_at:
            checked = self._tables[path] = (changed_at, is_table(Path(path)))
        return checked[1]


def make_records_folder(root: Path, top: Path) -> RecordsFolder:
    """Return the records at ``root``, which is ``top`` or lies in it."""
    name = top.name if root == top else str(root.relative_to(top))
    return RecordsFolder(folder_id(root), root, visible(name, 160))


def folder_id(path: Path) -> str:
    """Return the id of a folder, made from its path."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def visible(text: object, limit: int = 120) -> str:
    """Return text from records for a page: printable, on one line, and without marks that turn its direction."""
    return one_line(text, limit)


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, nearest first."""
    while path := path.rpartition("/")[0]:
        yield path
    yield "/"
